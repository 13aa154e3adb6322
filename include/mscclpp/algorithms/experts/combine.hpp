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
//          each goes home as it is
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
#include "mscclpp/device/group_ops.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"

namespace mscclpp {
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
    experts.requireLimit(sizeof(T), experts.layout.limits.elementBytes);
  }

  template <BlockSet Senders>
  MSCCLPP_DEVICE void send(Senders const& blocks, MatrixView<T const> const& results) const {
    auto const& layout = experts_.layout;
    experts_.requireLimit(results.columns, layout.limits.hidden);
    auto const warps = impl::Warps::of(blocks);
    // Other ranks first: their rows have a way to go.
    for (int distance = 1; distance <= experts_.size(); ++distance) {
      int const home = (experts_.rank() + distance) % experts_.size();
      auto const units = experts_.rowsFrom(home) * layout.pieces;
      for (auto unit = warps.rank; unit < units; unit += warps.count) {
        sendPiece(results, home, unit / layout.pieces, unit % layout.pieces);
      }
    }
  }

  template <BlockSet Folders, class I, class Finish = impl::ExpertSumsAsTheyAre>
  MSCCLPP_DEVICE void fold(Folders const& blocks, Routing<I> const& routing, MatrixView<T> const& out,
                           Finish const& finish = {}) const {
    auto const& layout = experts_.layout;
    experts_.check(routing);
    experts_.requireLimit(out.columns, layout.limits.hidden);
    auto const warps = impl::Warps::of(blocks);
    for (auto unit = warps.rank; unit < routing.tokens * layout.pieces; unit += warps.count) {
      foldPiece(routing, out, finish, unit / layout.pieces, impl::RowPiece::of(layout, unit % layout.pieces));
    }
  }

  // For kernels that write parts in ways of their own: each is an arrival of its token at home for each of its pieces.
  MSCCLPP_DEVICE TileRound<B> const& round() const { return round_; }
  MSCCLPP_DEVICE void end() const { round_.end(); }

 private:
  MSCCLPP_DEVICE void sendPiece(MatrixView<T const> const& results, int home, std::uint32_t slot,
                                std::uint32_t number) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    auto const& head = experts_.head(experts_.rank(), home, slot);
    auto const piece = impl::RowPiece::of(layout, number);
    if (warp.rank() == 0) round_.ready(home);
    syncWhole(warp);
    bool const whole = impl::isWhole(results, 16);
    auto const rowOf = [&](std::uint32_t k) {
      auto const& entry = head.entries[k];
      return entry.expert < 0 ? layout::noExpertRow : entry.row;
    };
    if (!layout.limits.partOfEach) {
      auto* const to = experts_.part<T>(home, head.token, head.part) + piece.first;
      impl::forEachElements<N>(piece.count, [&](std::uint32_t at, std::uint32_t count) {
        Vector<float, N> total{};
        for (std::uint32_t k = 0; k < layout.limits.topK; ++k) {
          auto const row = rowOf(k);
          if (row == layout::noExpertRow) continue;
          add(total, impl::loadElements<N>(results.at(row, piece.first + at), count, whole), head.entries[k].weight);
        }
        impl::storeElements<N>(to + at, convert<T>(total), count, true);
      });
    } else {
      for (std::uint32_t k = 0; k < layout.limits.topK; ++k) {
        if (head.entries[k].expert < 0) continue;
        auto* const to = experts_.part<T>(home, head.token, k) + piece.first;
        auto const row = rowOf(k);
        impl::forEachElements<N>(piece.count, [&](std::uint32_t at, std::uint32_t count) {
          Vector<T, N> values{};
          if (row != layout::noExpertRow) {
            values = impl::loadElements<N>(results.at(row, piece.first + at), count, whole);
          }
          impl::storeElements<N>(to + at, values, count, true);
        });
      }
    }
    syncWhole(warp);
    if (warp.rank() == 0) round_.arrive(home, head.token);
  }

  template <class I, class Finish>
  MSCCLPP_DEVICE void foldPiece(Routing<I> const& routing, MatrixView<T> const& out, Finish const& finish,
                                std::uint32_t token, impl::RowPiece const& piece) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    auto const* const ofToken = routing.of(token);
    bool const leads = warp.rank() < routing.topK && experts_.isFirstOfRank(ofToken, warp.rank());
    auto const ranks = reduce(warp, leads ? 1u : 0u, Sum{});
    if (warp.rank() == 0) round_.await(token, ranks * layout.pieces);
    syncWhole(warp);
    bool const whole = impl::isWhole(out, 16);
    auto const parts = layout.limits.partOfEach ? routing.topK : ranks;
    impl::forEachElements<N>(piece.count, [&](std::uint32_t at, std::uint32_t count) {
      Vector<float, N> total{};
      for (std::uint32_t p = 0; p < parts; ++p) {
        if (layout.limits.partOfEach && ofToken[p] < 0) continue;
        auto const* const from = experts_.part<T>(experts_.rank(), token, p) + piece.first;
        add(total, impl::loadElements<N>(from + at, count, true),
            layout.limits.partOfEach ? routing.weight(token, p) : 1.0f);
      }
      auto const sums = finish(total, token, piece.first + at);
      impl::storeElements<N>(out.at(token, piece.first + at), convert<T>(sums), count, whole);
    });
  }

  MSCCLPP_DEVICE static void add(Vector<float, N>& total, Vector<T, N> const& values, float weight) {
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < N; ++i) total[i] = Sum{}(total[i], static_cast<float>(values[i]) * weight);
  }

  DeviceExperts const& experts_;
  TileRound<B> round_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
