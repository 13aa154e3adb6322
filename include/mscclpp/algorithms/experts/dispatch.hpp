// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens travel to the ranks of their experts, in the user's own kernel.
//
//   Dispatch<bf16, Float8E4M3> dispatch(experts, thisGrid());
//   dispatch.send(thisGrid(), MatrixView{x, tokens, hidden}, routing);
//   auto const laidOut = dispatch.layOut(PackedByExpert{128});
//   dispatch.place(thisGrid(), laidOut, placed);
//   dispatch.end();
//
//   Dispatch<T, W>   rows of T travel as W: the same type, or Float8E4M3, Float8E5M2 or int8 with a scale for each 128
//                    columns, which is their largest magnitude / the largest that W can say
//   send             a token's row goes to each rank that has experts of it, once, with its number, its experts there
//                    and their weights; ahead of the rows go the counts. Waits for nobody but for peers that have not
//                    begun this round
//   layOut           waits for all ranks' counts, and says which rows are whose: PackedByExpert{a}, one expert's behind
//                    the other's, each from a multiple of a on; PaddedByExpert{n}, n rows for each expert; or
//                    ByToken{}, a row for each token, whatever the number of its experts here. In all of them by
//                    source, then in the order of its tokens
//   place            copies the rows there as they come
//   awaitPlaced      until so many rows of a tile of placed rows are there: for blocks that multiply them already
//   end              ends the round, as TileRound::end()
//
// Called by all threads of whole blocks, of full warps; by all blocks of the round the constructor, layOut and end,
// send and place by any that share them; grids may differ between ranks. Rows, counts and order are the same in every
// run. All of it stays on the device, so graphs can be replayed with other tokens and routings, up to the limits.
//
// On end, what this rank has placed is all there; what it has sent has gone but need not be placed yet. What came stays
// in the memory of `experts` for Combine until the next Dispatch with it.
//
// Cost: each row leaves once for each rank, as pieces by a warp each, and with each piece goes an addition behind a
// fence. Beside the rows 272 bytes each. place reads each row here once and writes it once for each expert.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/quantised.hpp"
#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/algorithms/experts/placed_rows.hpp"
#include "mscclpp/algorithms/experts/routing_scan.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/group_ops.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <Number T, Number W, BlockSet B = GridGroup>
class Dispatch {
  static constexpr bool isQuantised = !std::same_as<T, W>;
  static_assert(!isQuantised || largestOf<W> != 0,
                "Dispatch: rows travel as they are, or as Float8E4M3, Float8E5M2 or int8");

 public:
  MSCCLPP_DEVICE Dispatch(DeviceExperts const& experts, B const& blocks)
      : experts_(experts), round_(experts.flags, blocks) {
    experts.requireWholeWarps();
    experts.requireLimit(sizeof(W), experts.layout.limits.elementBytes);
  }

  template <BlockSet Senders, class I>
  MSCCLPP_DEVICE void send(Senders const& blocks, MatrixView<T const> const& x, Routing<I> const& routing) const {
    experts_.check(routing, x);
    RoutingScan scan(experts_, routing, blocks);
    sendCounts(blocks, scan);
    auto const& layout = experts_.layout;
    scan.forEachBatch([&](RoutingBatch const& batch) {
      auto const warps = impl::Warps::ofBlock();
      for (auto unit = warps.rank; unit < batch.tokens * routing.topK * layout.pieces; unit += warps.count) {
        auto const entry = unit / layout.pieces;
        auto const token = entry / routing.topK;
        auto const k = entry % routing.topK;
        if (batch.isLead(token, k)) sendPiece(x, routing, batch, token, k, unit % layout.pieces);
      }
    });
  }

  MSCCLPP_DEVICE LaidOutRows const& layOut(PackedByExpert const& order) const {
    return layOut(0xffffffffu, false, [&](LaidOutRows const& rows, std::uint32_t expert) {
      std::uint64_t first = 0;
      for (std::uint32_t e = 0; e < expert; ++e) first += roundUp<std::uint64_t>(rows.count[e], order.alignment);
      return first;
    });
  }
  MSCCLPP_DEVICE LaidOutRows const& layOut(PaddedByExpert const& order) const {
    return layOut(order.rows, false,
                  [&](LaidOutRows const&, std::uint32_t expert) { return std::uint64_t{expert} * order.rows; });
  }
  MSCCLPP_DEVICE LaidOutRows const& layOut(ByToken const&) const {
    return layOut(0xffffffffu, true, [](LaidOutRows const&, std::uint32_t) { return std::uint64_t{0}; });
  }

  template <BlockSet Placers>
  MSCCLPP_DEVICE void place(Placers const& blocks, LaidOutRows const& laidOut, PlacedRows<W> const& out) const {
    auto const& layout = experts_.layout;
    experts_.check(out.rows);
    impl::RowPlacer<W, isQuantised, B> const placer(experts_, round_, laidOut, out);
    if (blocks.blockRank() == 0) placer.tell();
    // Sources in turn, the own one first: its rows need no link.
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    for (auto unit = blocks.blockRank(); unit < ranks * layout.tilesOfSource(); unit += blocks.blockCount()) {
      int const source = static_cast<int>((static_cast<std::uint32_t>(experts_.rank()) + unit % ranks) % ranks);
      auto const tile = unit / ranks;
      auto const first = tile * layout.tileTokens;
      auto const all = experts_.rowsFrom(source);
      if (first >= all) continue;
      auto const rows = minimum(layout.tileTokens, all - first);
      if (thisBlock().rank() == 0) {
        round_.await(layout.rowFlag(static_cast<std::uint32_t>(source), tile), rows * layout.pieces, source);
      }
      syncWhole(thisBlock());
      auto const warps = impl::Warps::ofBlock();
      for (auto piece = warps.rank; piece < rows * layout.pieces; piece += warps.count) {
        placer.place(source, first + piece / layout.pieces, piece % layout.pieces);
      }
    }
  }

  // By one thread. Placed rows are cut into limits.gates tiles of ceil(room / gates) rows.
  MSCCLPP_DEVICE void awaitPlaced(std::uint32_t tile, std::uint32_t rows) const {
    round_.await(experts_.layout.gateFlag(tile), rows * experts_.layout.pieces);
  }

  // For kernels that write rows in ways of their own: flags as in ExpertsLayout.
  MSCCLPP_DEVICE TileRound<B> const& round() const { return round_; }
  MSCCLPP_DEVICE void end() const { round_.end(); }

 private:
  template <BlockSet Senders, class I>
  MSCCLPP_DEVICE void sendCounts(Senders const& blocks, RoutingScan<I> const& scan) const {
    auto const group = thisBlock();
    auto const perRank = experts_.layout.perRank;
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    for (auto i = scan.teller(); i < ranks; i += blocks.blockCount()) {
      int const peer = static_cast<int>((static_cast<std::uint32_t>(experts_.rank()) + 1 + i) % ranks);
      if (group.rank() == 0) round_.ready(peer);
      syncWhole(group);
      auto* const counts = experts_.counts(peer, experts_.rank());
      for (auto e = group.rank(); e <= perRank; e += group.size()) {
        counts[e] = e < perRank ? scan.tokensFor(peer, e) : scan.rowsFor(peer);
      }
      syncWhole(group);
      if (group.rank() == 0)
        round_.arrive(peer, experts_.layout.countFlag(static_cast<std::uint32_t>(experts_.rank())));
    }
  }

  template <class I>
  MSCCLPP_DEVICE void sendPiece(MatrixView<T const> const& x, Routing<I> const& routing, RoutingBatch const& batch,
                                std::uint32_t token, std::uint32_t k, std::uint32_t number) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    int const self = experts_.rank();
    auto const entry = token * routing.topK + k;
    int const peer = experts_.rankOf(batch.expert[entry]);
    auto const slot = batch.slot[entry];
    if (warp.rank() == 0) round_.ready(peer);
    syncWhole(warp);
    if (number == 0) {
      auto& head = experts_.head(peer, self, slot);
      if (warp.rank() < routing.topK) {
        auto const other = token * routing.topK + warp.rank();
        auto const expert = batch.expert[other];
        bool const there = expert >= 0 && experts_.rankOf(expert) == peer;
        head.entries[warp.rank()] = {
            .expert = there ? expert - peer * static_cast<std::int32_t>(layout.perRank) : -1,
            .position = there ? batch.position[other] : 0,
            .weight = routing.weight(batch.first + token, warp.rank()),
            .row = layout::noExpertRow,
        };
      } else if (warp.rank() < layout.limits.topK) {
        head.entries[warp.rank()].expert = -1;
      }
      if (warp.rank() == 0) {
        head.token = batch.first + token;
        std::uint32_t part = 0;
        for (std::uint32_t i = 0; i < k; ++i) part += batch.isLead(token, i) ? 1 : 0;
        head.part = part;
      }
    }
    auto const piece = impl::RowPiece::of(layout, number);
    auto const* const from = x.at(batch.first + token, piece.first);
    auto* const to = experts_.row<W>(peer, self, slot) + piece.first;
    if constexpr (isQuantised) {
      quantise(from, to, experts_.scales(peer, self, slot), piece);
    } else {
      copy(warp, to, from, std::uint64_t{piece.count} * sizeof(W));
    }
    syncWhole(warp);
    if (warp.rank() == 0) {
      round_.arrive(peer, layout.rowFlag(static_cast<std::uint32_t>(self), slot / layout.tileTokens));
    }
  }

  MSCCLPP_DEVICE void quantise(T const* from, W* to, float* scales, impl::RowPiece const& piece) const {
    constexpr auto columns = layout::ExpertsLayout::scaleColumns;
    constexpr unsigned each = columns / arch::warpSize;
    constexpr unsigned together = 4;  // scales whose loads are on their way
    auto const lane = thisWarp().rank();
    bool const whole = isAligned(from, each * sizeof(T));
    for (std::uint32_t first = 0; first < piece.count; first += together * columns) {
      Vector<T, each> held[together];
      arch::leaveUnset(held);
      auto const at = [&](unsigned i) { return first + i * columns + lane * each; };
      auto const count = [&](unsigned i) { return at(i) < piece.count ? minimum(each, piece.count - at(i)) : 0; };
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < together; ++i) held[i] = impl::loadElements<each>(from + at(i), count(i), whole);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < together; ++i) {
        if (first + i * columns >= piece.count) break;
        auto const values = convert<float>(held[i]);
        float most = 0;
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < each; ++k) most = Max{}(most, values[k] < 0 ? -values[k] : values[k]);
        most = reduce(thisWarp(), most, Max{});
        auto const factor = most == 0 ? 0 : largestOf<W> / most;
        auto const small = map(values, [&](float v) { return quantised<W>(v * factor); });
        impl::storeElements<each>(to + at(i), small, count(i), true);
        if (lane == 0) scales[(piece.first + first) / columns + i] = most / largestOf<W>;
      }
    }
  }

  template <class First>
  MSCCLPP_DEVICE LaidOutRows const& layOut(std::uint32_t limit, bool byToken, First const& firstOf) const {
    auto& rows = arch::blockShared<LaidOutRows, Dispatch>();
    auto const group = thisBlock();
    auto const perRank = experts_.layout.perRank;
    for (auto source = group.rank(); source < static_cast<unsigned>(experts_.size()); source += group.size()) {
      round_.await(experts_.layout.countFlag(source), 1, static_cast<int>(source));
    }
    syncWhole(group);
    if (group.rank() == 0) {
      rows.limit = limit;
      rows.byToken = byToken;
      std::uint32_t before = 0;
      for (int source = 0; source < experts_.size(); ++source) {
        rows.firstOf[source] = before;
        before += experts_.rowsFrom(source);
      }
      rows.firstOf[experts_.size()] = before;
    }
    for (auto e = group.rank(); e < perRank; e += group.size()) {
      std::uint32_t ahead = 0;
      for (int source = 0; source < experts_.size(); ++source) {
        rows.ahead[static_cast<unsigned>(source) * perRank + e] = ahead;
        ahead += experts_.counts(experts_.rank(), source)[e];
      }
      rows.count[e] = ahead;
    }
    group.sync();
    for (auto e = group.rank(); e < perRank; e += group.size()) {
      rows.first[e] = static_cast<std::uint32_t>(minimum<std::uint64_t>(firstOf(rows, e), 0xffffffffu));
    }
    group.sync();
    return rows;
  }

  DeviceExperts const& experts_;
  TileRound<B> round_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
