// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What experts have made of tokens travels home and is added up there, in the user's own kernel, behind a Dispatch with
// the same memory.
//
//   Combine<bf16> combine(experts, thisGrid());
//   combine.send(thisGrid(), results);                      a row for each that was placed
//   combine.fold(thisGrid(), routing, MatrixView{y, tokens, hidden});
//   combine.end();
//
//   send   of each token that came here, its experts' rows. Without limits.partOfEach they are multiplied by their
//          weights and added here, in the order of the token's experts, and go home as one row, rounded to T; with it
//          each goes home as it is. What was placed ByToken goes home as it is, once, in place of the first of its
//          experts. ExpertWeights::none leaves
//          the weights out, for the gradients of what was dispatched
//   fold   waits for each token's parts, not for all ranks, and adds them up in the order of its experts (of the first
//          on each rank), in float; with limits.partOfEach it multiplies by the weights. `finish(values, token,
//          column)` may do something more with a Vector of sums before they are rounded
//
// Called as Dispatch is; the routing is the one that was dispatched. A row that was dropped counts as zeros, and a
// token without experts becomes zeros. The same bits in every run. What was dispatched stays, so another Combine may
// follow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"

namespace mscclpp {

enum class ExpertWeights : std::uint8_t { asRouted, none };

inline namespace MSCCLPP_BACKEND {

namespace impl {

struct ExpertSumsAsTheyAre {
  template <class V>
  MSCCLPP_DEVICE V operator()(V const& values, std::uint32_t, std::uint32_t) const {
    return values;
  }
};

}  // namespace impl

template <Number T, BlockSet B = GridGroup>
class Combine {
  static constexpr unsigned N = 16 / sizeof(T);

 public:
  MSCCLPP_DEVICE Combine(DeviceExperts const& experts, B const& blocks)
      : experts_(experts), round_(experts.flags, blocks) {
    experts.requireWholeWarps();
  }

  template <BlockSet Senders>
  MSCCLPP_DEVICE void send(Senders const& blocks, MatrixView<T const> const& results,
                           ExpertWeights weights = ExpertWeights::asRouted) const {
    auto const& layout = experts_.layout;
    experts_.check(results);
    auto const warps = impl::Warps::of(blocks);
    // Other ranks first: their rows have a way to go. Each home's begin with the warp behind the last of the one
    // before.
    auto first = warps.rank;
    for (int distance = 1; distance <= experts_.size(); ++distance) {
      int const home = (experts_.rank() + distance) % experts_.size();
      auto const units = experts_.rowsFrom(home) * layout.pieces;
      auto unit = first;
      for (; unit < units; unit += warps.count) {
        sendPiece(results, weights, home, unit / layout.pieces, unit % layout.pieces);
      }
      first = unit - units;
    }
  }

  template <BlockSet Folders, class I, class Finish = impl::ExpertSumsAsTheyAre>
  MSCCLPP_DEVICE void fold(Folders const& blocks, Routing<I> const& routing, MatrixView<T> const& out,
                           Finish const& finish = {}) const {
    auto const& layout = experts_.layout;
    experts_.check(routing, out);
    auto const warps = impl::Warps::of(blocks);
    for (auto unit = warps.rank; unit < routing.tokens * layout.pieces; unit += warps.count) {
      foldPiece(routing, out, finish, unit / layout.pieces, impl::RowPiece::of(layout, unit % layout.pieces));
    }
  }

  // For kernels that write parts in ways of their own: each is an arrival of its token at home for each of its pieces.
  MSCCLPP_DEVICE TileRound<B> const& round() const { return round_; }
  MSCCLPP_DEVICE void end() const { round_.end(); }

 private:
  MSCCLPP_DEVICE void sendPiece(MatrixView<T const> const& results, ExpertWeights weights, int home, std::uint32_t slot,
                                std::uint32_t number) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    auto const& head = experts_.head(experts_.rank(), home, slot);
    // A lane for each of the token's experts; loads stand ahead of the wait for the peer.
    layout::ExpertEntry entry{.expert = -1, .position = 0, .weight = 0, .row = layout::noExpertRow};
    if (warp.rank() < layout.limits.topK) entry = head.entries[warp.rank()];
    auto const token = head.token, part = head.part, once = head.row;
    if (warp.rank() == 0) round_.ready(home);
    auto const here = arch::ballot(entry.expert >= 0);
    bool const isFirst = (here & ((1u << warp.rank()) - 1)) == 0;
    auto const row = entry.expert < 0              ? layout::noExpertRow
                     : once == layout::noExpertRow ? entry.row
                     : isFirst                     ? once
                                                   : layout::noExpertRow;
    requireAlone(row == layout::noExpertRow || row < results.rows, experts_.flags.watch, home,
                 std::uint64_t(layout::Misuse::expertRows), results.rows, row);
    bool const weighted = once == layout::noExpertRow && weights == ExpertWeights::asRouted;
    auto const terms = impl::ExpertTerms::packed({row, weighted ? entry.weight : 1});
    auto const piece = impl::RowPiece::of(layout, number);
    bool const whole = impl::isWhole(results, 16);
    if (!layout.limits.partOfEach) {
      auto* const to = experts_.part<T>(home, token, part) + piece.first;
      impl::forEachVectors<N>(piece.count, [&](auto const& at, auto const& count) {
        Vector<float, N> totals[impl::vectorsAtATime];
        terms.template sum<T>(totals, [&](std::uint32_t from, unsigned i) {
          return impl::loadElements<N>(results.at(from, piece.first + at(i)), count(i), whole);
        });
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < impl::vectorsAtATime; ++i) {
          impl::storeElements<N>(to + at(i), convert<T>(totals[i]), count(i), true);
        }
      });
    } else {
      for (std::uint32_t k = 0; k < layout.limits.topK; ++k) {
        if ((here >> k & 1) == 0) continue;
        auto* const to = experts_.part<T>(home, token, k) + piece.first;
        auto const from = arch::shuffle(row, k);
        impl::forEachVectors<N>(piece.count, [&](auto const& at, auto const& count) {
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < impl::vectorsAtATime; ++i) {
            auto const values = from != layout::noExpertRow
                                    ? impl::loadElements<N>(results.at(from, piece.first + at(i)), count(i), whole)
                                    : Vector<T, N>{};
            impl::storeElements<N>(to + at(i), values, count(i), true);
          }
        });
      }
    }
    syncWhole(warp);
    if (warp.rank() == 0) round_.arrive(home, token);
  }

  template <class I, class Finish>
  MSCCLPP_DEVICE void foldPiece(Routing<I> const& routing, MatrixView<T> const& out, Finish const& finish,
                                std::uint32_t token, impl::RowPiece const& piece) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    auto const* const ofToken = routing.of(token);
    bool const isEntry = warp.rank() < routing.topK && ofToken[warp.rank()] >= 0;
    int const rank = isEntry ? experts_.rankOf(ofToken[warp.rank()]) : -1;
    std::uint32_t ranks = 0;
    impl::RankSet seen{};
    for (std::uint32_t k = 0; k < routing.topK; ++k) {
      int const other = arch::shuffle(rank, k);
      if (other >= 0 && seen.add(other)) ++ranks;
    }
    if (warp.rank() == 0) round_.await(token, ranks * layout.pieces);
    bool const whole = impl::isWhole(out, 16);
    bool const each = layout.limits.partOfEach;
    bool const adds = each ? isEntry : warp.rank() < ranks;
    auto const terms = impl::ExpertTerms::packed(
        {adds ? warp.rank() : layout::noExpertRow, each && isEntry ? routing.weight(token, warp.rank()) : 1});
    impl::forEachVectors<N>(piece.count, [&](auto const& at, auto const& count) {
      Vector<float, N> totals[impl::vectorsAtATime];
      terms.template sum<T>(totals, [&](std::uint32_t part, unsigned i) {
        return impl::loadElements<N>(experts_.part<T>(experts_.rank(), token, part) + piece.first + at(i), count(i),
                                     true);
      });
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < impl::vectorsAtATime; ++i) {
        if (count(i) == 0) continue;
        auto const sums = finish(totals[i], token, piece.first + at(i));
        impl::storeElements<N>(out.at(token, piece.first + at(i)), convert<T>(sums), count(i), whole);
      }
    });
  }

  DeviceExperts const& experts_;
  TileRound<B> round_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
