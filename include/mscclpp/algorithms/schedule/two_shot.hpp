// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce in two exchanges: each rank reduces one share and sends the result to all.
//
// Two link latencies; 2(n-1)/n of the message leaves each rank, the least possible without a switch that reduces.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/schedule/share_result.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

struct TwoShot {
  // Rows of the workspace: one per source for the contributions, one per source for the results.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t ranks) { return 2 * ranks; }
  static constexpr bool dealsOut(Collective) { return true; }
  static constexpr Movement movement(Volume const& of) {
    auto const share = of.bytes / of.ranks;
    auto const sent = 2 * share * of.peers() * of.onWire;
    return {.traffic = {.part = share, .sent = sent, .stored = sent, .local = sent + of.bytes}, .exchanges = 2};
  }

  // By all threads of the blocks, as collective/allreduce.hpp says. Two waits a round: for what peers have of this
  // rank's share, and for the results of theirs.
  template <class Tr, class R, int Ranks, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, S const& in, View<T> out,
                                 Epilogue const& epilogue) {
    constexpr unsigned U = Tr::unroll;
    constexpr unsigned W = Tr::words;
    constexpr int ahead = peersTogether<Tr, Ranks>;
    int const ranks = Ranks != 0 ? Ranks : team.size;
    auto const rank = static_cast<unsigned>(team.rank);
    auto const resultRow = static_cast<unsigned>(ranks);
    auto const thread = blocks.block().rank();

    typename Tr::template Session<B> session(team, blocks, rows(static_cast<unsigned>(ranks)));
    auto const reader = readerOf<W, Tr::granule>(in);
    PayloadWriter<T, W, Tr::granule> const writer(out);
    auto const threads = session.threads();
    auto const slots = Tr::slotsFor(in.bytes());
    auto const share = shareSlots(slots, static_cast<unsigned>(ranks), Tr::slotsPerGroup);
    TilePartition const partition{share, minimum<std::uint32_t>(threads * U, session.rowSlots()), Tr::slotsPerGroup,
                                  blocks.blockCount(), blocks.blockRank()};
    auto const peerAt = [&](int distance) {
      return team.rank + distance < ranks ? team.rank + distance : team.rank + distance - ranks;
    };

    if (share == 0) return;

    auto const tileBytes = Tr::dataOffset(partition.tile);
    auto tile = partition.at(0);
    auto mine = threadSlots<U>(thread, threads, tile);
    for (std::uint64_t round = 0;;) {
      // Where this tile lies in the share of `owner`, in bytes.
      auto const offsetOf = [&](int owner) {
        return Tr::dataOffset(static_cast<std::uint64_t>(owner) * share + tile.first);
      };

      MSCCLPP_UNROLL
      for (int first = 1; first < ranks; first += ahead) {
        Payload<W> part[ahead][U];
        decltype(reader.window(0)) sources[ahead];  // known before the wait in open()
        std::byte* workspaces[ahead];
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          sources[k] = reader.window(offsetOf(peerAt(first + k)), tileBytes);
          workspaces[k] = team.workspace(peerAt(first + k));
        }
        if (first == 1 && round == 0) session.open();
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < U; ++i) {
            part[k][i] = mine.valid[i]
                             ? reader.read(sources[k], Tr::dataOffset(mine.slot[i]), Tr::dataBytes(mine.slot[i]))
                             : Payload<W>{};
          }
        }
        if (first == 1) session.beginRound();
        MSCCLPP_UNROLL
        for (int k = 0; k < ahead; ++k) {
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < U; ++i) {
            session.put(workspaces[k], rank, mine.slot[i], part[k][i], mine.active[i]);
          }
        }
      }
      if (ranks == 1) {
        if (round == 0) session.open();
        session.beginRound();
      }
      bool const last = partition.isLast(round);
      if (last) session.commit();
      session.exchange(0);

      auto const ownOffset = offsetOf(team.rank);
      impl::reduceShare<Tr, R>(
          team, session, reader.window(ownOffset, tileBytes), reader, mine, [&](unsigned i, Payload<W> const& result) {
            MSCCLPP_UNROLL
            for (int distance = 1; distance < ranks; ++distance) {
              session.put(team.workspace(peerAt(distance)), resultRow + rank, mine.slot[i], result, mine.active[i]);
            }
            if (mine.valid[i])
              impl::storeResult<Tr, R>(writer, writer.window(ownOffset, tileBytes), epilogue, result, ownOffset,
                                       mine.slot[i]);
          });
      session.exchange(1);

      MSCCLPP_UNROLL
      for (int first = 1; first < ranks; first += ahead) {
        Source sources[ahead * U];
        Payload<W> results[ahead * U];
        Window<T> targets[ahead];
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < ahead * U; ++k) {
          int const peer = peerAt(first + static_cast<int>(k / U));
          sources[k] = {peer, resultRow + static_cast<unsigned>(peer), mine.slot[k % U], mine.active[k % U]};
          if (k % U == 0) targets[k / U] = writer.window(offsetOf(peer), tileBytes);
        }
        session.receive(sources, results);
        MSCCLPP_UNROLL
        for (unsigned k = 0; k < ahead * U; ++k) {
          if (!mine.valid[k % U]) continue;
          auto const at = offsetOf(sources[k].peer);
          impl::storeResult<Tr, R>(writer, targets[k / U], epilogue, results[k], at, mine.slot[k % U]);
        }
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
