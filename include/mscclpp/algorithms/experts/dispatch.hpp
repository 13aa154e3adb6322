// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens travel to the ranks of their experts, in the user's own kernel.
//
//   Dispatch<bf16, Float8E4M3> dispatch(experts, thisGrid());
//   dispatch.send(thisGrid(), MatrixView{x, tokens, hidden}, routing);
//   auto const& laidOut = dispatch.layOut(PackedByExpert{128});
//   dispatch.place(thisGrid(), laidOut, placed);
//   dispatch.end();
//
// or, all of it, dispatch.run(MatrixView{x, tokens, hidden}, routing, PackedByExpert{128}, placed);
//
//   Dispatch<T, W>   rows of T travel as W: the same type, or Float8E4M3, Float8E5M2 or int8 with a scale for each 128
//                    columns, which is their largest magnitude / the largest that W can say
//   send             a token's row goes to each rank that has experts of it, once, with its number, its experts there
//                    and their weights; ahead of the rows go the counts. Waits for nobody but for peers that have not
//                    begun this round. Rows that are quantised already are given as ScaledRows<W>
//   layOut           waits for all ranks' counts, and says which rows are whose: PackedByExpert{a}, one expert's behind
//                    the other's, each from a multiple of a on; PaddedByExpert{n}, n rows for each expert; or
//                    ByToken{}, a row for each token, whatever the number of its experts here. In all of them by
//                    source, then in the order of its tokens
//   place            copies the rows there as they come
//   awaitPlaced      until so many rows of a tile of placed rows are there: for blocks that multiply them already
//   end              ends the round, as TileRound::end()
//
// Called by all threads of whole blocks, of full warps; by all blocks of the round the constructor and end, send and
// place by any that share them, layOut by those that place; grids may differ between ranks. Where some blocks send
// while the others place (roles.hpp, experts.layout.senders()), neither the links nor the memory wait for each other.
// Rows, counts and order are the same in every run. All of it stays on the device, so graphs can be replayed with other
// tokens and routings, up to the limits.
//
// Ranks that have failed (host/fused/experts.hpp) are sent nothing, and nothing of theirs is awaited or placed.
//
// On end, what this rank has placed is all there; what it has sent has gone but need not be placed yet. What came stays
// in the memory of `experts` for Combine until the next Dispatch with it.
//
// Rows travel as limits.transport says (layout/experts_handle.hpp): of few tokens as packets (row_lines.hpp), which are
// placed one by one as they come, else as they are, some together with a flag. Results are the same. Counts are packets
// always, so that no barrier is needed for them.
//
// Cost: each row leaves once for each rank, as pieces by a warp each, which reads its piece once for all ranks. As
// packets 128 bytes go for 120, and a line or two of head, and nobody waits for a fence; else, behind one fence of the
// warp, an addition to each rank, and beside the rows 272 bytes each. place reads each row here once and writes it once
// for each expert.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/algorithms/experts/placed_rows.hpp"
#include "mscclpp/algorithms/experts/routing_scan.hpp"
#include "mscclpp/algorithms/experts/scaled_rows.hpp"
#include "mscclpp/algorithms/experts/sent_rows.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/roles.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <Number T, Number W, BlockSet B = GridGroup>
class Dispatch {
  static constexpr bool isQuantised = !std::same_as<T, W>;
  static_assert(!isQuantised || largestOf<W> != 0,
                "Dispatch: rows travel as they are, or as Float8E4M3, Float8E5M2 or int8");

 public:
  MSCCLPP_DEVICE Dispatch(DeviceExperts const& experts, B const& blocks)
      : experts_(experts), round_(experts.flags, blocks, experts.failed) {
    experts.requireWholeWarps();
    experts.requireLimit(sizeof(W), experts.layout.limits.elementBytes);
  }

  template <BlockSet Senders, class I>
  MSCCLPP_DEVICE void send(Senders const& blocks, MatrixView<T const> const& x, Routing<I> const& routing) const {
    experts_.check(routing, x);
    sendRows(blocks, x, routing);
  }
  // Rows that are quantised already.
  template <BlockSet Senders, class I>
  MSCCLPP_DEVICE void send(Senders const& blocks, ScaledRows<W> const& x,
                           Routing<I> const& routing) const requires isQuantised {
    experts_.check(routing, x.rows);
    sendRows(blocks, x, routing);
  }

  MSCCLPP_DEVICE LaidOutRows const& layOut(RowOrder const& order) const {
    auto& rows = arch::blockShared<LaidOutRows, Dispatch>();
    auto const group = thisBlock();
    auto const perRank = experts_.layout.perRank;
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    // All loads at once; sums follow in shared memory.
    for (auto i = group.rank(); i < ranks * (perRank + 1); i += group.size()) {
      auto const source = i / (perRank + 1), e = i % (perRank + 1);
      auto& count = e < perRank ? rows.ahead[source * perRank + e] : rows.firstOf[source];
      if (experts_.hasFailed(static_cast<int>(source))) {
        count = 0;
        continue;
      }
      auto const flag = packetFlag(round_.number());
      auto const told =
          awaitPacket<LL8>(experts_.flags.watch, experts_.count(experts_.rank(), static_cast<int>(source), e), flag,
                           {layout::WaitKind::packet, static_cast<int>(source), e, flag});
      count = told.word[0];
    }
    if (group.rank() == 0) {
      rows.limit = order.limit;
      rows.byToken = order.byToken;
    }
    syncWhole(group);
    for (auto e = group.rank(); e < perRank; e += group.size()) {
      rows.count[e] = sumAhead(
          ranks, [&](std::uint32_t source) -> auto& { return rows.ahead[source * perRank + e]; });
      rows.first[e] = static_cast<std::uint32_t>(minimum<std::uint64_t>(order.roomOf(rows.count[e]), 0xffffffffu));
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

  template <BlockSet Placers>
  MSCCLPP_DEVICE void place(Placers const& blocks, LaidOutRows const& laidOut, PlacedRows<W> const& out) const {
    experts_.check(out.rows);
    impl::RowPlacer<W, isQuantised, B> const placer(experts_, round_, laidOut, out);
    if (blocks.blockRank() == 0) placer.tell();
    if (experts_.layout.packets != 0) return placeLines(blocks, laidOut, placer);
    placeTiles(blocks, laidOut, placer);
  }

  // All of it, by the blocks of a grid that layout.senders() has for each step.
  template <class I>
  MSCCLPP_DEVICE void run(MatrixView<T const> const& x, Routing<I> const& routing, RowOrder const& order,
                          PlacedRows<W> const& out) const requires std::same_as<B, GridGroup> {
    Roles{experts_.layout.senders(thisGrid().blockCount())}.split(
        thisGrid(), [&](auto const& senders) { send(senders, x, routing); },
        [&](auto const& placers) { place(placers, layOut(order), out); });
    end();
  }

  // By one thread. Placed rows are cut into limits.gates tiles of ceil(room / gates) rows.
  MSCCLPP_DEVICE void awaitPlaced(std::uint32_t tile, std::uint32_t rows) const {
    round_.await(experts_.layout.gateFlag(tile), rows * experts_.layout.pieces);
  }

  // For kernels that write rows to memory in ways of their own (limits.transport): flags as in ExpertsLayout.
  MSCCLPP_DEVICE TileRound<B> const& round() const { return round_; }
  MSCCLPP_DEVICE void end() const { round_.end(); }

 private:
  template <BlockSet Senders, class Rows, class I>
  MSCCLPP_DEVICE void sendRows(Senders const& blocks, Rows const& x, Routing<I> const& routing) const {
    RoutingScan scan(experts_, routing, blocks);
    // Once there is something to send.
    bool hasMet = false;
    auto const meetPeers = [&] {
      if (hasMet) return;
      auto const group = thisBlock();
      for (auto i = group.rank(); i < static_cast<unsigned>(experts_.size()); i += group.size()) {
        round_.ready(static_cast<int>(i));
      }
      syncWhole(group);
      hasMet = true;
    };
    if (scan.teller() < static_cast<unsigned>(experts_.size())) {
      meetPeers();
      sendCounts(blocks, scan);
    }
    auto const& layout = experts_.layout;
    impl::RowSender<Rows, W, B, I> const sender(experts_, round_, x, routing);
    scan.forEachBatch([&](RoutingBatch const& batch) {
      meetPeers();
      auto const warps = impl::Warps::ofBlock();
      auto const pieces = batch.tokens * layout.pieces;
      // Where there are more warps than pieces, several share out the ranks that a piece goes to.
      auto const shares = maximum(1u, warps.count / pieces);
      for (auto unit = warps.rank; unit < pieces * shares; unit += warps.count) {
        auto const piece = unit % pieces;
        auto const token = piece / layout.pieces;
        auto const ranks = shareOf(batch.sent[token], unit / pieces, shares);
        if (ranks != 0) sender.send(batch, token, piece % layout.pieces, ranks);
      }
    });
  }

  template <BlockSet Senders, class I>
  MSCCLPP_DEVICE void sendCounts(Senders const& blocks, RoutingScan<I> const& scan) const {
    auto const group = thisBlock();
    auto const perRank = experts_.layout.perRank;
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    for (auto i = scan.teller(); i < ranks; i += blocks.blockCount()) {
      int const peer = static_cast<int>((static_cast<std::uint32_t>(experts_.rank()) + 1 + i) % ranks);
      if (experts_.hasFailed(peer)) continue;
      for (auto e = group.rank(); e <= perRank; e += group.size()) {
        LL8::store(experts_.count(peer, experts_.rank(), e),
                   {{e < perRank ? scan.tokensFor(peer, e) : scan.rowsFor(peer)}}, packetFlag(round_.number()), true);
      }
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

  // Sources in turn, the own one first: its rows need no link.
  MSCCLPP_DEVICE std::uint32_t sourceOf(std::uint32_t unit) const {
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    return (static_cast<std::uint32_t>(experts_.rank()) + unit % ranks) % ranks;
  }
  // Each piece by a warp, in the order in which they leave.
  template <BlockSet Placers, class Placer>
  MSCCLPP_DEVICE void placeLines(Placers const& blocks, LaidOutRows const& laidOut, Placer const& placer) const {
    auto const& layout = experts_.layout;
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    auto const rowsOf = [&](std::uint32_t source) { return laidOut.firstOf[source + 1] - laidOut.firstOf[source]; };
    std::uint32_t most = 0;
    for (std::uint32_t source = 0; source < ranks; ++source) most = maximum(most, rowsOf(source));
    auto const warps = impl::Warps::of(blocks);
    // A row's pieces follow each other, so that a warp that has several awaits the head once.
    impl::LaneHead head;
    auto headOf = most * ranks;  // none
    for (auto unit = warps.rank; unit < most * ranks * layout.pieces; unit += warps.count) {
      auto const row = unit / layout.pieces, slot = row / ranks;
      auto const source = sourceOf(row);
      if (slot >= rowsOf(source)) continue;
      if (row != headOf) head = placer.awaitHead(static_cast<int>(source), slot);
      headOf = row;
      placer.placeLines(static_cast<int>(source), slot, unit % layout.pieces, head);
    }
  }
  // Where there are more blocks than tiles, several share one.
  template <BlockSet Placers, class Placer>
  MSCCLPP_DEVICE void placeTiles(Placers const& blocks, LaidOutRows const& laidOut, Placer const& placer) const {
    auto const& layout = experts_.layout;
    auto const ranks = static_cast<std::uint32_t>(experts_.size());
    auto const units = ranks * layout.tilesOfSource();
    auto const shares = maximum(1u, blocks.blockCount() / units);
    auto const share = blocks.blockRank() / units;
    if (share >= shares) return;
    auto const warps = impl::Warps::ofBlock();
    for (auto unit = blocks.blockRank() - share * units; unit < units; unit += blocks.blockCount()) {
      auto const source = sourceOf(unit);
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
