// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce in one exchange: every rank sends its whole input to every peer, and each reduces everything.
//
// One link latency; (n-1) times the message leaves each rank. For small messages.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

struct OneShot {
  // Rows of the workspace: one per source.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t ranks) { return ranks; }
  static constexpr Movement movement(Volume const& of) { return oneExchange(of); }
  // Few packets of 16 bytes begin sooner from twice the blocks.
  template <class Tr>
  static constexpr std::uint32_t spreadBelow = Tr::slotBytes == 16 && Tr::slotsPerGroup == 1 && !Tr::signals ? 1024 : 0;

  // By all threads of the blocks, as collective/allreduce.hpp says. One wait a round, for all peers' payloads, and none
  // at the end. Without elements nothing is sent, and no round counted.
  template <class Tr, class R, int Ranks, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, S const& in, View<T> out,
                                 Epilogue const& epilogue) {
    constexpr unsigned U = Tr::unroll;
    constexpr unsigned W = Tr::words;
    int const ranks = Ranks != 0 ? Ranks : team.size;
    auto const thread = blocks.block().rank();

    typename Tr::template Session<B> session(team, blocks, static_cast<unsigned>(ranks));
    auto const reader = readerOf<W, Tr::granule>(in);
    PayloadWriter<T, W, Tr::granule> const writer(out);
    auto const threads = session.threads();
    TilePartition const partition{Tr::slotsFor(in.bytes()), minimum<std::uint32_t>(threads * U, session.rowSlots()),
                                  Tr::slotsPerGroup, blocks.blockCount(), blocks.blockRank()};

    if (partition.slots == 0) return;
    if constexpr (putsToAll<Tr>) requireMulticast(team);

    auto const tileBytes = Tr::dataOffset(partition.tile);
    auto tile = partition.at(0);
    auto mine = threadSlots<U>(thread, threads, tile);
    for (std::uint64_t round = 0;;) {
      auto const tileOffset = Tr::dataOffset(tile.first);
      auto const source = reader.window(tileOffset, tileBytes);
      PeerWorkspaces<Ranks> const peers(team);
      if (round == 0) session.open();
      Payload<W> own[U];
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < U; ++i) {
        own[i] = mine.valid[i] ? reader.read(source, Tr::dataOffset(mine.slot[i]), Tr::dataBytes(mine.slot[i]))
                               : Payload<W>{};
      }
      session.beginRound();
      putSame<Tr>(team, peers, session, mine, own);
      bool const last = partition.isLast(round);
      if (last) session.commit();
      session.exchange(0);

      auto const target = writer.window(tileOffset, tileBytes);
      typename R::template Accumulators<W> totals[U]{};
      R::template fold<U>(team, session, 0, mine.slot, mine.active, own, totals);
      if constexpr (putsToAll<Tr>) receiveOwn(session, team.rank, mine);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < U; ++i) {
        if (!mine.valid[i]) continue;
        auto const offset = Tr::dataOffset(mine.slot[i]);
        if (R::template isPastEnd<Epilogue>(target, offset)) continue;
        auto const bytes = Tr::dataBytes(mine.slot[i]);
        auto const index = (tileOffset + offset) / sizeof(T);
        auto const stored = minimum(target.bytes - offset, bytes);
        writer.write(target, offset, R::template conclude<W>(epilogue, totals[i], index, stored), bytes);
      }
      if (last) return;
      session.endRound();
      round += partition.roundSlots();
      tile = partition.at(round);
      mine = threadSlots<U>(thread, threads, tile);
    }
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
