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
// Cost: each row leaves once for each rank, as pieces by a warp each, which reads its piece once for all ranks; behind
// one fence then goes an addition to each. Beside the rows 272 bytes each. place reads each row here once and writes it
// once for each expert.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/quantised.hpp"
#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/algorithms/experts/placed_rows.hpp"
#include "mscclpp/algorithms/experts/routing_scan.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/vector.hpp"

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
    // By the threads with least to do meanwhile; barriers stand behind it, in sendCounts() and forEachBatch().
    auto const group = thisBlock();
    for (auto i = group.size() - 1 - group.rank(); i < static_cast<unsigned>(experts_.size()); i += group.size()) {
      round_.ready(static_cast<int>(i));
    }
    sendCounts(blocks, scan);
    auto const& layout = experts_.layout;
    scan.forEachBatch([&](RoutingBatch const& batch) {
      auto const warps = impl::Warps::ofBlock();
      auto const pieces = batch.tokens * layout.pieces;
      // Where there are more warps than pieces, several share out the ranks that a piece goes to.
      auto const shares = maximum(1u, warps.count / pieces);
      for (auto unit = warps.rank; unit < pieces * shares; unit += warps.count) {
        auto const piece = unit % pieces;
        auto const token = piece / layout.pieces;
        auto const ranks = shareOf(batch.leads[token], unit / pieces, shares);
        if (ranks != 0) sendPiece(x, routing, batch, token, piece % layout.pieces, ranks);
      }
    });
  }

  MSCCLPP_DEVICE LaidOutRows const& layOut(PackedByExpert const& order) const {
    return layOut(0xffffffffu, false,
                  [&](std::uint32_t rows) { return roundUp<std::uint64_t>(rows, order.alignment); });
  }
  MSCCLPP_DEVICE LaidOutRows const& layOut(PaddedByExpert const& order) const {
    return layOut(order.rows, false, [&](std::uint32_t) { return std::uint64_t{order.rows}; });
  }
  MSCCLPP_DEVICE LaidOutRows const& layOut(ByToken const&) const {
    return layOut(0xffffffffu, true, [](std::uint32_t) { return std::uint64_t{0}; });
  }

  template <BlockSet Placers>
  MSCCLPP_DEVICE void place(Placers const& blocks, LaidOutRows const& laidOut, PlacedRows<W> const& out) const {
    auto const& layout = experts_.layout;
    experts_.check(out.rows);
    impl::RowPlacer<W, isQuantised, B> const placer(experts_, round_, laidOut, out);
    if (blocks.blockRank() == 0) placer.tell();
    // Sources in turn, the own one first: its rows need no link. Where there are more blocks than tiles, several share
    // one.
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    auto const units = ranks * layout.tilesOfSource();
    auto const shares = maximum(1u, blocks.blockCount() / units);
    auto const share = blocks.blockRank() / units;
    if (share >= shares) return;
    auto const warps = impl::Warps::ofBlock();
    for (auto unit = blocks.blockRank() - share * units; unit < units; unit += blocks.blockCount()) {
      auto const source = (static_cast<std::uint32_t>(experts_.rank()) + unit % ranks) % ranks;
      auto const tile = unit / ranks;
      auto const first = tile * layout.tileTokens;
      auto const all = laidOut.firstOf[source + 1] - laidOut.firstOf[source];
      if (first >= all) continue;
      auto const rows = minimum(layout.tileTokens, all - first);
      if (thisBlock().rank() == 0) {
        round_.await(layout.rowFlag(source, tile), rows * layout.pieces, static_cast<int>(source));
      }
      syncWhole(thisBlock());
      for (auto piece = warps.rank * shares + share; piece < rows * layout.pieces; piece += warps.count * shares) {
        placer.place(static_cast<int>(source), first + piece / layout.pieces, piece % layout.pieces);
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
    if (scan.teller() < ranks) syncWhole(group);
    for (auto i = scan.teller(); i < ranks; i += blocks.blockCount()) {
      int const peer = static_cast<int>((static_cast<std::uint32_t>(experts_.rank()) + 1 + i) % ranks);
      auto* const counts = experts_.counts(peer, experts_.rank());
      for (auto e = group.rank(); e <= perRank; e += group.size()) {
        counts[e] = e < perRank ? scan.tokensFor(peer, e) : scan.rowsFor(peer);
      }
      syncWhole(group);
      if (group.rank() == 0)
        round_.arrive(peer, experts_.layout.countFlag(static_cast<std::uint32_t>(experts_.rank())));
    }
  }

  // Of the bits that are set, those whose turn it is.
  MSCCLPP_DEVICE static std::uint32_t shareOf(std::uint32_t bits, std::uint32_t share, std::uint32_t shares) {
    if (shares == 1) return bits;
    std::uint32_t mine = 0, turn = 0;
    for (auto rest = bits; rest != 0; rest &= rest - 1) {
      if (turn == share) mine |= rest & (0 - rest);
      turn = turn + 1 == shares ? 0 : turn + 1;
    }
    return mine;
  }

  // To the ranks of the token's experts whose bits are set: lane k knows where that is for the k-th.
  template <class I>
  MSCCLPP_DEVICE void sendPiece(MatrixView<T const> const& x, Routing<I> const& routing, RoutingBatch const& batch,
                                std::uint32_t token, std::uint32_t number, std::uint32_t ranks) const {
    auto const warp = thisWarp();
    auto const& layout = experts_.layout;
    int const self = experts_.rank();
    bool const sends = (ranks >> warp.rank() & 1) != 0;
    auto const entry = token * routing.topK + (sends ? warp.rank() : 0);
    int const peer = sends ? experts_.rankOf(batch.expert[entry]) : self;
    auto const slot = sends ? batch.slot[entry] : 0;
    auto const each = [&](auto const& f) {
      for (std::uint32_t k = 0; k < routing.topK; ++k) {
        if ((ranks >> k & 1) != 0) f(k);
      }
    };
    auto const piece = impl::RowPiece::of(layout, number);
    auto const* const from = x.at(batch.first + token, piece.first);
    auto* const to = experts_.row<W>(peer, self, slot) + piece.first;
    // While loads are on their way.
    auto const sendHeads = [&] {
      if (number != 0) return to;
      each([&](std::uint32_t k) {
        int const at = arch::shuffle(peer, k);
        sendHead(experts_.head(at, self, arch::shuffle(slot, k)), routing, batch, token, k, at);
      });
      return to;
    };
    if constexpr (isQuantised) {
      auto* const scales = experts_.scales(peer, self, slot);
      sendHeads();
      quantiseToEach(from, piece, impl::isWhole(x, 16), [&](auto const& f) {
        each([&](std::uint32_t k) { f(arch::shuffle(to, k), arch::shuffle(scales, k)); });
      });
    } else {
      impl::copyToEach(from, piece.count, impl::isWhole(x, 16), sendHeads,
                       [&](W* row, auto const& f) { each([&](std::uint32_t k) { f(arch::shuffle(row, k)); }); });
    }
    syncWhole(warp);
    if (sends) round_.arrive(peer, layout.rowFlag(static_cast<std::uint32_t>(self), slot / layout.tileTokens));
  }

  // What goes with a token's row to the rank of its k-th expert.
  template <class I>
  MSCCLPP_DEVICE void sendHead(layout::ExpertRow& head, Routing<I> const& routing, RoutingBatch const& batch,
                               std::uint32_t token, std::uint32_t k, int peer) const {
    auto const lane = thisWarp().rank();
    auto const& layout = experts_.layout;
    if (lane < routing.topK) {
      auto const entry = token * routing.topK + lane;
      auto const expert = batch.expert[entry];
      bool const there = expert >= 0 && experts_.rankOf(expert) == peer;
      head.entries[lane] = {
          .expert = there ? expert - peer * static_cast<std::int32_t>(layout.perRank) : -1,
          .position = there ? batch.position[entry] : 0,
          .weight = routing.weight(batch.first + token, lane),
          .row = layout::noExpertRow,
      };
    } else if (lane < layout.limits.topK) {
      head.entries[lane].expert = -1;
    }
    if (lane == 0) {
      head.token = batch.first + token;
      std::uint32_t part = 0;
      for (std::uint32_t i = 0; i < k; ++i) part += batch.isLead(token, i) ? 1 : 0;
      head.part = part;
    }
  }

  // A piece, read and quantised once, to each place of rows that `each` gives with one of scales.
  template <class Each>
  MSCCLPP_DEVICE void quantiseToEach(T const* from, impl::RowPiece const& piece, bool whole, Each const& each) const {
    constexpr auto columns = layout::ExpertsLayout::scaleColumns;
    constexpr unsigned n = 16 / sizeof(T);
    constexpr unsigned sharers = columns / n;  // lanes whose columns share a scale
    constexpr unsigned step = arch::warpSize * n;
    constexpr unsigned together = 4;  // loads on their way
    static_assert(sharers <= arch::warpSize && together <= sharers);
    auto const lane = thisWarp().rank();
    for (std::uint32_t first = 0; first < piece.count; first += together * step) {
      auto const at = [&](unsigned i) { return first + i * step + lane * n; };
      auto const count = [&](unsigned i) { return at(i) < piece.count ? minimum(n, piece.count - at(i)) : 0; };
      Vector<T, n> held[together];
      Vector<W, n> small[together];
      arch::leaveUnset(held);
      arch::leaveUnset(small);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < together; ++i) held[i] = impl::loadElements<n>(from + at(i), count(i), whole);
      float scale = 0;  // of the lane's columns in the vector that it stores it for
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < together; ++i) {
        auto const values = convert<float>(held[i]);
        std::uint32_t bits = 0;
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < n; ++k) bits = maximum(bits, magnitudeBits(values[k]));
        MSCCLPP_UNROLL
        for (unsigned distance = 1; distance < sharers; distance *= 2) {
          bits = maximum(bits, arch::shuffleXor(bits, distance));
        }
        auto const most = bitCast<float>(bits);
        auto const factor = most == 0 ? 0 : largestOf<W> / most;
        small[i] = map(values, [&](float v) { return quantised<W>(v * factor); });
        if (lane % sharers == i) scale = most / largestOf<W>;
      }
      auto const own = first + lane % sharers * step + lane / sharers * columns;
      bool const tells = lane % sharers < together && own < piece.count;
      each([&](W* to, float* scales) {
        MSCCLPP_UNROLL
        for (unsigned i = 0; i < together; ++i) impl::storeElements<n>(to + at(i), small[i], count(i), true);
        if (tells) scales[(piece.first + own) / columns] = scale;
      });
    }
  }

  // roomOf(rows): how far the next expert's first row is from that of an expert with so many rows.
  template <class RoomOf>
  MSCCLPP_DEVICE LaidOutRows const& layOut(std::uint32_t limit, bool byToken, RoomOf const& roomOf) const {
    auto& rows = arch::blockShared<LaidOutRows, Dispatch>();
    auto const group = thisBlock();
    auto const perRank = experts_.layout.perRank;
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    for (auto source = group.rank(); source < ranks; source += group.size()) {
      round_.await(experts_.layout.countFlag(source), 1, static_cast<int>(source));
    }
    syncWhole(group);
    // All loads at once; sums follow in shared memory.
    for (auto i = group.rank(); i < ranks * (perRank + 1); i += group.size()) {
      auto const source = i / (perRank + 1), e = i % (perRank + 1);
      (e < perRank ? rows.ahead[source * perRank + e] : rows.firstOf[source]) =
          experts_.counts(experts_.rank(), static_cast<int>(source))[e];
    }
    if (group.rank() == 0) {
      rows.limit = limit;
      rows.byToken = byToken;
    }
    group.sync();
    for (auto e = group.rank(); e < perRank; e += group.size()) {
      rows.count[e] = sumAhead(
          ranks, [&](std::uint32_t source) -> auto& { return rows.ahead[source * perRank + e]; });
      rows.first[e] = static_cast<std::uint32_t>(minimum<std::uint64_t>(roomOf(rows.count[e]), 0xffffffffu));
    }
    if (group.rank() == group.size() - 1) {
      rows.firstOf[ranks] = sumAhead(
          ranks, [&](std::uint32_t source) -> auto& { return rows.firstOf[source]; });
    }
    group.sync();
    if (group.rank() < arch::warpSize) findFirsts(rows, perRank);
    group.sync();
    return rows;
  }
  // Of each of `count` numbers makes the sum of those before it. Returns that of all.
  template <class At>
  MSCCLPP_DEVICE static std::uint32_t sumAhead(std::uint32_t count, At const& at) {
    std::uint32_t before = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      auto const own = at(i);
      at(i) = before;
      before += own;
    }
    return before;
  }
  // Of each expert's room its first row, by a warp, a lane for some that lie together.
  MSCCLPP_DEVICE static void findFirsts(LaidOutRows& rows, std::uint32_t perRank) {
    auto const lane = thisWarp().rank();
    auto const each = ceilDiv(perRank, arch::warpSize);
    auto const begin = minimum(lane * each, perRank), end = minimum(begin + each, perRank);
    std::uint64_t own = 0;
    for (auto e = begin; e < end; ++e) own += rows.first[e];
    auto next = own;
    for (unsigned distance = 1; distance < arch::warpSize; distance *= 2) {
      auto const before = arch::shuffle(next, lane < distance ? lane : lane - distance);
      if (lane >= distance) next += before;
    }
    next -= own;
    for (auto e = begin; e < end; ++e) {
      auto const room = rows.first[e];
      rows.first[e] = static_cast<std::uint32_t>(minimum<std::uint64_t>(next, 0xffffffffu));
      next += room;
    }
  }

  DeviceExperts const& experts_;
  TileRound<B> round_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
