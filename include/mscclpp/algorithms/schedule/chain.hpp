// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From rank to rank, in pieces, while the rest is still on its way. Every link carries the message once; the time until
// the last rank has its first piece grows with the team. Called through Broadcast<ChainSchedule, PeerMemory<>>,
// Broadcast<ChainSchedule, StagePieces<>> and Reduce<ChainSchedule, StagePieces<>, Op>.
//
// Broadcast into peers' outputs: each rank stores what has come into its own output into the next rank's. Through the
// stages: it takes what has come into its stage, once, for its own output and the next rank's stage. Reduce: from the
// root's successor to the root, each rank adds its own part to what has come into its stage and stores that into the
// next rank's, so sums are rounded to the element type on each link. Through the stages no buffer needs symmetric
// memory.
//
// Block b moves pieces b, b + blocks, ... on every rank, so it waits for block b of its neighbour only, and each of its
// pieces is a round: the epochs of the call's pieces follow each other, and a signal tells how many have come. All
// ranks meet at the begin, when everybody's output and stage are free. Into outputs there is no meeting at the end: a
// rank returns when its last piece has come and gone on. Through the stages there is one, since neighbours' neighbours
// may still read theirs, which the next collective writes. Costs the meetings and a signal for each piece, and through
// the stages another one, which tells that a slot of the stage is free again.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/transport/peer_memory.hpp"
#include "mscclpp/algorithms/transport/stage_pieces.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/epoch.hpp"
#include "mscclpp/device/symmetric_view.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {

namespace detail {

// Rounded down; numbers from 2^26 on have that of the one below.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t squareRoot(std::uint64_t number) {
  constexpr std::uint32_t highest = 1 << 12;
  auto const of = static_cast<std::uint32_t>(minimum<std::uint64_t>(number, std::uint64_t{4} * highest * highest - 1));
  std::uint32_t root = 0;
  for (auto bit = highest; bit != 0; bit /= 2) {
    if ((root + bit) * (root + bit) <= of) root += bit;
  }
  return root;
}

}  // namespace detail

// Bytes of a piece, a multiple of 128, at most `most`. Over h hops before the last link, p pieces of each block take
// (p + h) times a signal and a p-th of the message's time on a link: least for p = sqrt(h x bytes / 600 KiB), which is
// what a link of an H200 carries in the 1.7 us of a signal.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t chainPiece(std::uint64_t bytes, std::uint32_t blocks, std::uint32_t ranks,
                                                       std::uint32_t most) {
  auto const least = minimum<std::uint32_t>(most, 8192);
  auto const hops = ranks > 3 ? ranks - 2 : 1;
  // Twice the root, to round it.
  auto const pieces = maximum(1u, (detail::squareRoot(bytes * hops / (150 * 1024)) + 1) / 2);
  auto const wanted = ceilDiv<std::uint64_t>(ceilDiv<std::uint64_t>(bytes, std::uint64_t{blocks} * pieces), 128) * 128;
  return wanted < least ? least : static_cast<std::uint32_t>(minimum<std::uint64_t>(wanted, most));
}

inline namespace MSCCLPP_BACKEND {

struct ChainSchedule {
  static constexpr bool rankOrder = false;   // it depends on the root, and sums are rounded on each link
  static constexpr bool fixedRanks = false;  // a rank has one successor, however many there are
  template <class Tr>
  static constexpr Windows windows(Collective) {
    return {.out = DirectTransport<Tr>};
  }
  template <class Tr>
  static constexpr Movement movement(Volume const& of) {
    Traffic traffic{.part = of.bytes, .sent = of.bytes, .stored = of.bytes};
    if (DirectTransport<Tr>) return {.traffic = traffic, .pace = Pace::chain};
    // The stage is loaded; broadcast stores its output, too.
    traffic.local = (traitsOf(of.collective).reduces ? 1 : 2) * of.bytes;
    return {.traffic = traffic, .pace = Pace::chain, .barriers = 1};
  }

  // The root's `in` becomes everybody's `out`; the others' is not touched.
  template <DirectTransport Tr, BlockSet B, class T>
  MSCCLPP_DEVICE static void broadcast(DeviceTeam const& team, B const& blocks, View<T const> const& in,
                                       SymmetricView<T> const& out, int root) {
    static_assert(longestPiece<Tr> != 0 && longestPiece<Tr> % 128 == 0);
    if (out.count() == 0) return;
    Pieces const pieces(out.own().bytes(), blocks, team.size, longestPiece<Tr>);
    auto const first = beginRounds(team, blocks, pieces.count());
    publishPhase(team, blocks, 0, first);
    commitEpoch(team, blocks, first + pieces.count() - 1);
    awaitPhase(team, blocks, 0, first);

    int const place = (team.rank - root + team.size) % team.size;
    bool const receives = place != 0;
    bool const sends = place != team.size - 1;
    int const next = team.peerAt(1, team.size);
    int const previous = team.peerAt(team.size - 1, team.size);
    auto const group = blocks.block();
    auto* const own = reinterpret_cast<std::byte*>(out.at(team.rank));
    auto* const theirs = reinterpret_cast<std::byte*>(out.at(next));
    auto const* const from = receives ? own : reinterpret_cast<std::byte const*>(in.data);
    for (std::uint64_t piece = 0; piece < pieces.count(); ++piece) {
      auto const at = pieces.first(piece);
      auto const bytes = pieces.bytes(piece);
      if (receives) awaitPiece(team, blocks, previous, first + piece);
      if (sends) {
        copy(group, theirs + at, from + at, bytes);
        syncWhole(group);
        if (group.rank() == 0) {
          store<Order::release, Scope::system>(team.signal(next, pieceCame, blocks.blockRank(), team.rank),
                                               first + piece);
        }
      }
      // Behind the signal: nobody waits for it.
      if (!receives && own != from) copy(group, own + at, from + at, bytes);
    }
  }

  // Rows of a half of the stage.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t) { return slots / 2; }

  // The root's `in` becomes everybody's `out`; the others' is not touched.
  template <StagePieceTransport Tr, BlockSet B, ElementSource S, class T>
  MSCCLPP_DEVICE static void broadcast(DeviceTeam const& team, B const& blocks, S const& in, View<T> const& out,
                                       int root) {
    bool const begins = team.rank == root;
    bool const keeps = !begins || !liesAt(in, out.data);
    throughStages<Tr>(
        team, blocks, out.bytes(), root,
        [&](auto const& group, std::uint64_t at, std::uint32_t bytes, Payload<4> const* come, Payload<4>* to) {
          PayloadWriter<T, 4, 16> const writer(out.part(at / sizeof(T), bytes / sizeof(T)));
          auto const own = writer.window(0);
          auto const emit = [&](std::uint32_t offset, Payload<4> const& payload) {
            if (to != nullptr) to[offset / 16] = payload;
            if (keeps) writer.write(own, offset, payload);
          };
          if (begins) {
            auto const reader = readerOf<4, 16>(in.part(at / sizeof(T), bytes / sizeof(T)));
            auto const window = reader.window(0);
            passPiece<Tr::unroll>(
                group, bytes, [&](std::uint32_t offset) { return reader.read(window, offset); }, emit);
          } else {
            passPiece<Tr::unroll>(
                group, bytes, [&](std::uint32_t offset) { return come[offset / 16]; }, emit);
          }
        });
  }

  // Everybody's `in` becomes the root's `out`; the others' is not touched.
  template <StagePieceTransport Tr, class R, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void reduce(DeviceTeam const& team, B const& blocks, S const& in, T* out, int root,
                                    Epilogue const& epilogue) {
    throughStages<Tr>(
        team, blocks, in.bytes(), (root + 1) % team.size,
        [&](auto const& group, std::uint64_t from, std::uint32_t bytes, Payload<4> const* come, Payload<4>* to) {
          auto const at = from / sizeof(T);
          auto const part = in.part(at, bytes / sizeof(T));
          if (to != nullptr) {
            addToPiece<Tr::unroll, R>(group, part, come, [&](std::uint32_t offset, auto const& totals) {
              to[offset / 16] = R::template narrow<4>(totals);
            });
          } else {
            PayloadWriter<T, 4, 16> const writer(View<T>{out + at, part.count});
            auto const window = writer.window(0);
            addToPiece<Tr::unroll, R>(group, part, come, [&](std::uint32_t offset, auto totals) {
              R::finish(totals, team.size);
              writer.write(window, offset,
                           R::template conclude<4>(epilogue, totals, at + offset / sizeof(T), bytes - offset));
            });
          }
        });
  }

 private:
  // Of the phases; their words hold the epoch of the newest piece.
  static constexpr unsigned pieceCame = 1;
  static constexpr unsigned pieceTaken = 2;
  // Of a rank's stage, in both halves by turns.
  static constexpr std::uint32_t slots = 4;

  // A message in pieces that the blocks take in turn: all have as many, the last of them shorter or empty.
  class Pieces {
   public:
    template <BlockSet B>
    MSCCLPP_DEVICE Pieces(std::uint64_t bytes, B const& blocks, int ranks, std::uint32_t most)
        : bytes_(bytes),
          piece_(chainPiece(bytes, blocks.blockCount(), static_cast<std::uint32_t>(ranks), most)),
          blocks_(blocks.blockCount()),
          block_(blocks.blockRank()) {}

    MSCCLPP_DEVICE std::uint64_t count() const {
      return ceilDiv<std::uint64_t>(bytes_, std::uint64_t{piece_} * blocks_);
    }
    MSCCLPP_DEVICE std::uint64_t first(std::uint64_t number) const {
      return minimum<std::uint64_t>((number * blocks_ + block_) * piece_, bytes_);
    }
    MSCCLPP_DEVICE std::uint64_t bytes(std::uint64_t number) const {
      return minimum<std::uint64_t>(bytes_ - first(number), piece_);
    }

   private:
    std::uint64_t bytes_;
    std::uint32_t piece_;
    std::uint32_t blocks_;
    std::uint32_t block_;
  };

  // A message from rank `begin` through everybody's stage to the rank before it. move(group, at, bytes, come, to) for
  // each piece of this block, `at` bytes into the message: it lies at `come` in the own stage, null on the first rank,
  // and goes to `to` in the next one's, null on the last.
  template <StagePieceTransport Tr, BlockSet B, class Move>
  MSCCLPP_DEVICE static void throughStages(DeviceTeam const& team, B const& blocks, std::uint64_t bytes, int begin,
                                           Move const& move) {
    if (bytes == 0) return;
    auto const room = team.layout.stageSlice / rows(0) / 128 * 128;
    require(room != 0, team.watch, -1, std::uint64_t(layout::Misuse::workspaceBytes), team.layout.stageSlice,
            std::uint64_t{128} * rows(0));
    Pieces const pieces(bytes, blocks, team.size, minimum<std::uint32_t>(Tr::piece, room));
    auto const first = beginRounds(team, blocks, pieces.count() + 1);
    auto const end = first + pieces.count();
    publishPhase(team, blocks, 0, first);
    commitEpoch(team, blocks, end);
    awaitPhase(team, blocks, 0, first);

    int const next = team.peerAt(1, team.size);
    int const previous = team.peerAt(team.size - 1, team.size);
    bool const receives = team.rank != begin;
    bool const sends = next != begin;
    auto const group = blocks.block();
    bool const leads = group.rank() == 0;
    auto const block = blocks.blockRank();
    auto const stage = [&](int rank, std::uint64_t piece) {
      auto const slot = static_cast<std::uint32_t>(piece % slots);
      auto const slice = (slot % 2 * team.layout.blocks + block) * std::uint64_t{team.layout.stageSlice};
      return reinterpret_cast<Payload<4>*>(team.workspace(rank) + team.layout.stage + slice + slot / 2 * room);
    };
    for (std::uint64_t piece = 0; piece < pieces.count(); ++piece) {
      if (leads && receives) awaitSignal(team, pieceCame, block, previous, first + piece);
      if (leads && sends && piece >= slots) awaitSignal(team, pieceTaken, block, next, first + piece - slots);
      syncWhole(group);
      move(group, pieces.first(piece), static_cast<std::uint32_t>(pieces.bytes(piece)),
           receives ? stage(team.rank, piece) : nullptr, sends ? stage(next, piece) : nullptr);
      syncWhole(group);
      if (!leads) continue;
      fence<Order::acquireRelease, Scope::system>();  // one for both
      if (sends) store<Order::relaxed, Scope::system>(team.signal(next, pieceCame, block, team.rank), first + piece);
      if (receives) {
        store<Order::relaxed, Scope::system>(team.signal(previous, pieceTaken, block, team.rank), first + piece);
      }
    }
    publishPhase(team, blocks, 0, end);
    awaitPhase(team, blocks, 0, end);
  }

  // emit(offset, read(offset)) for this thread's payloads of a piece.
  template <unsigned Unroll, SyncGroup G, class Read, class Emit>
  MSCCLPP_DEVICE static void passPiece(G const& group, std::uint32_t bytes, Read const& read, Emit const& emit) {
    auto const step = group.size() * 16;
    for (std::uint32_t from = group.rank() * 16; from < bytes; from += Unroll * step) {
      Payload<4> held[Unroll];
      MSCCLPP_UNROLL
      for (unsigned u = 0; u < Unroll; ++u) {
        if (from + u * step < bytes) held[u] = read(from + u * step);
      }
      MSCCLPP_UNROLL
      for (unsigned u = 0; u < Unroll; ++u) {
        if (from + u * step < bytes) emit(from + u * step, held[u]);
      }
    }
  }

  template <BlockSet B>
  MSCCLPP_DEVICE static void awaitPiece(DeviceTeam const& team, B const& blocks, int previous, std::uint64_t epoch) {
    if (blocks.block().rank() == 0) awaitSignal(team, pieceCame, blocks.blockRank(), previous, epoch);
    syncWhole(blocks.block());
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
