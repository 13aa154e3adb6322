// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce in two exchanges: each rank reduces one share and sends the result to all.
//
// Two link latencies; 2(n-1)/n of the message leaves each rank, the least possible without a switch that reduces.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
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
      reduceShare<Tr, R>(
          team, session, reader.window(ownOffset, tileBytes), reader, mine, [&](unsigned i, Payload<W> const& result) {
            MSCCLPP_UNROLL
            for (int distance = 1; distance < ranks; ++distance) {
              session.put(team.workspace(peerAt(distance)), resultRow + rank, mine.slot[i], result, mine.active[i]);
            }
            if (mine.valid[i])
              store<Tr, R>(writer, writer.window(ownOffset, tileBytes), epilogue, result, ownOffset, mine.slot[i]);
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
          store<Tr, R>(writer, targets[k / U], epilogue, results[k], at, mine.slot[k % U]);
        }
      }
      if (last) return;
      session.endRound();
      round += partition.roundSlots();
      tile = partition.at(round);
      mine = threadSlots<U>(thread, threads, tile);
    }
  }

 private:
  // Folds the own share `Tr::batch` payloads at a time and hands each result, as it will travel, to `emit`.
  template <class Tr, class R, class Session, class Source, class Reader, unsigned U, class Emit>
  MSCCLPP_DEVICE static void reduceShare(DeviceTeam const& team, Session const& session, Source const& source,
                                         Reader const& reader, ThreadSlots<U> const& mine, Emit emit) {
    constexpr unsigned batch = Tr::batch;
    static_assert(U % batch == 0);
    MSCCLPP_UNROLL
    for (unsigned first = 0; first < U; first += batch) {
      Payload<Tr::words> own[batch];
      std::uint32_t slots[batch];
      bool active[batch];
      typename R::template Accumulators<Tr::words> totals[batch]{};
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i) {
        slots[i] = mine.slot[first + i];
        active[i] = mine.active[first + i];
        own[i] = mine.valid[first + i] ? reader.read(source, Tr::dataOffset(slots[i]), Tr::dataBytes(slots[i]))
                                       : Payload<Tr::words>{};
      }
      R::template fold<batch>(team, session, 0, slots, active, own, totals);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i) emit(first + i, R::template narrow<Tr::words>(totals[i]));
    }
  }

  // The epilogue sees, on every rank, the result as it travelled: rounded to the element type.
  template <class Tr, class R, class Writer, class Target, class Epilogue>
  MSCCLPP_DEVICE static void store(Writer const& writer, Target const& target, Epilogue const& epilogue,
                                   Payload<Tr::words> const& result, std::uint64_t tileOffset, std::uint32_t slot) {
    auto const offset = Tr::dataOffset(slot);
    if constexpr (std::same_as<Epilogue, Identity>) {
      writer.write(target, offset, result, Tr::dataBytes(slot));
    } else {
      if (R::template isPastEnd<Epilogue>(target, offset)) return;
      auto const index = (tileOffset + offset) / R::elementBytes;
      auto const stored = minimum(target.bytes - offset, Tr::dataBytes(slot));
      writer.write(target, offset, R::template conclude<Tr::words>(epilogue, R::widen(result), index, stored),
                   Tr::dataBytes(slot));
    }
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
