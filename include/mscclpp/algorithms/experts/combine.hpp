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
    auto const piece = impl::RowPiece::of(layout, number);
    if (warp.rank() == 0) round_.ready(home);
    syncWhole(warp);
    bool const whole = impl::isWhole(results, 16);
    bool const once = head.row != layout::noExpertRow;
    impl::ExpertTerms const terms(layout.limits.topK, [&](std::uint32_t k) -> impl::ExpertTerm {
      auto const& entry = head.entries[k];
      if (entry.expert < 0) return {layout::noExpertRow, 0};
      auto const row = once ? head.row : entry.row;
      requireAlone(row == layout::noExpertRow || row < results.rows, experts_.flags.watch, home,
                   std::uint64_t(layout::Misuse::expertRows), results.rows, row);
      if (once) return {isFirst(head, k) ? row : layout::noExpertRow, 1};
      return {row, weights == ExpertWeights::asRouted ? entry.weight : 1};
    });
    auto const load = [&](std::uint32_t row, std::uint32_t at, std::uint32_t count) {
      return impl::loadElements<N>(results.at(row, piece.first + at), count, whole);
    };
    auto const token = head.token;
    if (!layout.limits.partOfEach) {
      auto* const to = experts_.part<T>(home, token, head.part) + piece.first;
      impl::forEachElements<N>(piece.count, [&](std::uint32_t at, std::uint32_t count) {
        auto const total = terms.template sum<T, N>([&](std::uint32_t row) { return load(row, at, count); });
        impl::storeElements<N>(to + at, convert<T>(total), count, true);
      });
    } else {
      for (std::uint32_t k = 0; k < terms.count(); ++k) {
        if (head.entries[k].expert < 0) continue;
        auto* const to = experts_.part<T>(home, token, k) + piece.first;
        auto const row = terms.row(k);
        impl::forEachElements<N>(piece.count, [&](std::uint32_t at, std::uint32_t count) {
          auto const values = row != layout::noExpertRow ? load(row, at, count) : Vector<T, N>{};
          impl::storeElements<N>(to + at, values, count, true);
        });
      }
    }
    syncWhole(warp);
    if (warp.rank() == 0) round_.arrive(home, token);
  }

  // Of a token's experts here.
  MSCCLPP_DEVICE static bool isFirst(layout::ExpertRow const& head, std::uint32_t k) {
    for (std::uint32_t other = 0; other < k; ++other) {
      if (head.entries[other].expert >= 0) return false;
    }
    return true;
  }

  template <class I, class Finish>
  MSCCLPP_DEVICE void foldPiece(Routing<I> const& routing, MatrixView<T> const& out, Finish const& finish,
                                std::uint32_t token, impl::RowPiece const& piece) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    auto const* const ofToken = routing.of(token);
    std::uint32_t ranks = 0;
    impl::RankSet seen{};
    for (std::uint32_t k = 0; k < routing.topK; ++k) {
      if (ofToken[k] >= 0 && seen.add(experts_.rankOf(ofToken[k]))) ++ranks;
    }
    if (warp.rank() == 0) round_.await(token, ranks * layout.pieces);
    syncWhole(warp);
    bool const whole = impl::isWhole(out, 16);
    bool const each = layout.limits.partOfEach;
    impl::ExpertTerms const terms(each ? routing.topK : ranks, [&](std::uint32_t k) -> impl::ExpertTerm {
      return {each && ofToken[k] < 0 ? layout::noExpertRow : k, each ? routing.weight(token, k) : 1};
    });
    impl::forEachElements<N>(piece.count, [&](std::uint32_t at, std::uint32_t count) {
      auto const total = terms.template sum<T, N>([&](std::uint32_t part) {
        return impl::loadElements<N>(experts_.part<T>(experts_.rank(), token, part) + piece.first + at, count, true);
      });
      auto const sums = finish(total, token, piece.first + at);
      impl::storeElements<N>(out.at(token, piece.first + at), convert<T>(sums), count, whole);
    });
  }

  DeviceExperts const& experts_;
  TileRound<B> round_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
