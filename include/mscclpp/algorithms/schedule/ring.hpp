// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce from neighbour to neighbour: shares of the message go round the ring twice, in pieces. On the first turn
// each rank adds its own part to what comes and hands it on; whoever completes a share starts it on the second turn,
// from output to output.
//
//   AllReduce<RingSchedule, StagePieces<>, Sum>{team}(thisGrid(), View{x, n}, SymmetricView<T>(window, offset, n));
//
// 2(n-1)/n of the message leaves each rank, all of it to one neighbour: for machines whose links are no switch but go
// from one device to the next, or share a bus. Where all pairs have links of their own, TwoShotPush has two steps where
// this has 2(n-1). Only `out` lies in symmetric memory, and it may be the input.
//
// A share's contributions are combined in the order of the ring, from the share's own rank on, rounded to the element
// type on each link; one rank does the last step, so all get the same bits, though not those of other schedules.
//
// Block b works with block b of its neighbours. Each message is a round: epochs count them, and one arrives only after
// the sender has taken the one before. So a slot of the stage that is used again after as many messages as the ring has
// ranks is free: the sender's message rests on one from here that was sent behind what lay there. All meet at the
// begin; nobody waits at the end but for its own last piece.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/schedule/shares.hpp"
#include "mscclpp/algorithms/transport/stage_pieces.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/epoch.hpp"
#include "mscclpp/device/symmetric_view.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

struct RingSchedule {
  static constexpr bool rankOrder = false;  // it depends on the share, and sums are rounded on each link
  static constexpr bool dealsOut(Collective) { return true; }
  static constexpr Windows windows(Collective) { return {.out = true}; }
  // Rows of the stage: one per rank.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t ranks) { return ranks; }

  // By all threads of the blocks. On return these blocks' pieces of `out` are there, whoever made them. A piece has
  // Tr::piece bytes, or less where a block's stage has no room for one of each rank; a stage with less than 128 bytes a
  // rank is refused.
  template <StagePieceTransport Tr, class R, int Ranks, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, S const& in, SymmetricView<T> const& out,
                                 Epilogue const& epilogue) {
    if (in.count == 0) return;
    int const ranks = Ranks != 0 ? Ranks : team.size;
    auto const slot =
        minimum<std::uint32_t>(Tr::piece, team.layout.stageSlice / static_cast<unsigned>(ranks) / 128 * 128);
    require(slot != 0, team.watch, -1, std::uint64_t(layout::Misuse::workspaceBytes), team.layout.stageSlice,
            std::uint64_t{128} * static_cast<unsigned>(ranks));
    auto const each = shareOf<T>(in.count, static_cast<unsigned>(ranks), 0).count * sizeof(T);
    auto const rounds = ceilDiv<std::uint64_t>(each, std::uint64_t{blocks.blockCount()} * slot);
    auto const messages = 2 * static_cast<unsigned>(ranks - 1);  // of a round

    auto const epochs = maximum<std::uint64_t>(rounds * messages, 1);
    auto const first = beginRounds(team, blocks, epochs);
    publishPhase(team, blocks, 0, first);
    commitEpoch(team, blocks, first + epochs - 1);
    awaitPhase(team, blocks, 0, first);

    Call<Tr::unroll, R, B, S, T, Epilogue> const call{team, blocks, in, out, epilogue, ranks, slot, first};
    for (std::uint64_t round = 0; round < rounds; ++round) {
      auto message = round * messages;
      auto const at = (round * blocks.blockCount() + blocks.blockRank()) * slot;
      for (int step = 0; step < ranks; ++step) {
        int const share = (team.rank - step + ranks) % ranks;
        if (step != 0) call.await(message - 1);
        if (step == ranks - 1) {
          call.complete(share, at, message);
        } else {
          call.handOn(share, at, message, step != 0);
        }
        if (ranks > 1) call.tell(message++);
      }
      for (int step = 0; step < ranks - 1; ++step) {
        call.await(message - 1);
        if (step == ranks - 2) break;
        call.spread((team.rank - step + ranks) % ranks, at);
        call.tell(message++);
      }
    }
  }

 private:
  static constexpr unsigned came = 1;  // of the phases; its word holds the epoch of the newest message

  template <unsigned U, class R, BlockSet B, ElementSource S, class T, class Epilogue>
  struct Call {
    DeviceTeam const& team;
    B const& blocks;
    S const& in;
    SymmetricView<T> const& out;
    Epilogue const& epilogue;
    int ranks;
    std::uint32_t slot;   // bytes of a piece
    std::uint64_t first;  // epoch of message 0

    MSCCLPP_DEVICE int next() const { return team.peerAt(1, ranks); }

    MSCCLPP_DEVICE void await(std::uint64_t message) const {
      auto const group = blocks.block();
      if (group.rank() == 0) {
        awaitSignal(team, came, blocks.blockRank(), team.peerAt(ranks - 1, ranks), first + message);
      }
      syncWhole(group);
    }
    MSCCLPP_DEVICE void tell(std::uint64_t message) const {
      auto const group = blocks.block();
      syncWhole(group);
      if (group.rank() != 0) return;
      store<Order::release, Scope::system>(team.signal(next(), came, blocks.blockRank(), team.rank), first + message);
    }

    // Of the share's piece that begins `at` bytes into it.
    MSCCLPP_DEVICE std::uint32_t bytesAt(int share, std::uint64_t at) const {
      auto const all =
          shareOf<T>(in.count, static_cast<unsigned>(ranks), static_cast<unsigned>(share)).count * sizeof(T);
      return at < all ? static_cast<std::uint32_t>(minimum<std::uint64_t>(all - at, slot)) : 0;
    }
    MSCCLPP_DEVICE std::uint64_t elementAt(int share, std::uint64_t at) const {
      return shareOf<T>(in.count, static_cast<unsigned>(ranks), static_cast<unsigned>(share)).first + at / sizeof(T);
    }
    MSCCLPP_DEVICE Payload<4>* stage(int rank, std::uint64_t message) const {
      auto const place = team.layout.stage + std::uint64_t{blocks.blockRank()} * team.layout.stageSlice +
                         message % static_cast<unsigned>(ranks) * slot;
      return reinterpret_cast<Payload<4>*>(team.workspace(rank) + place);
    }

    // The piece with what came, if `added`, into the next rank's stage.
    MSCCLPP_DEVICE void handOn(int share, std::uint64_t at, std::uint64_t message, bool added) const {
      auto* const to = stage(next(), message);
      combine(share, at, added ? stage(team.rank, message - 1) : nullptr,
              [&](std::uint32_t offset, auto const& totals) { to[offset / 16] = R::template narrow<4>(totals); });
    }
    // The piece of all ranks, into the own output and the next rank's.
    MSCCLPP_DEVICE void complete(int share, std::uint64_t at, std::uint64_t message) const {
      auto const index = elementAt(share, at);
      auto const bytes = bytesAt(share, at);
      auto const pieceOf = [&](int rank) { return View<T>{out.at(rank) + index, bytes / sizeof(T)}; };
      PayloadWriter<T, 4, 16> const own(pieceOf(team.rank)), theirs(pieceOf(next()));
      auto const here = own.window(0), there = theirs.window(0);
      combine(share, at, ranks > 1 ? stage(team.rank, message - 1) : nullptr, [&](std::uint32_t offset, auto totals) {
        R::finish(totals, ranks);
        auto const result = R::template conclude<4>(epilogue, totals, index + offset / sizeof(T), bytes - offset);
        own.write(here, offset, result);
        if (ranks > 1) theirs.write(there, offset, result);
      });
    }
    MSCCLPP_DEVICE void spread(int share, std::uint64_t at) const {
      auto const index = elementAt(share, at);
      copy(blocks.block(), reinterpret_cast<std::byte*>(out.at(next()) + index),
           reinterpret_cast<std::byte const*>(out.at(team.rank) + index), bytesAt(share, at));
    }

   private:
    template <class Emit>
    MSCCLPP_DEVICE void combine(int share, std::uint64_t at, Payload<4> const* come, Emit const& emit) const {
      auto const part = in.part(static_cast<std::size_t>(elementAt(share, at)), bytesAt(share, at) / sizeof(T));
      addToPiece<U, R>(blocks.block(), part, come, emit);
    }
  };
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
