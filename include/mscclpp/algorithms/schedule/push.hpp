// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank stores what it has for its peers straight into their buffers.
//
// A plan tells, for each rank of the team, what goes there and where it lies there: send(peer) and target(peer). Parts
// may be empty. What a prologue makes goes through registers, by stores. On return, the blocks' parts of what the same
// blocks of the peers have sent are there; a thread that reads other parts first meets the other blocks.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/transport/peer_memory.hpp"
#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// `sameToAll`: send() is the same part for every peer, and is read once where addresses allow. Every thread asks, more
// than once.
template <class P>
concept PushPlan = requires(P const& plan, int peer) {
  typename P::Element;
  { P::sameToAll } -> std::convertible_to<bool>;
  { plan.send(peer) } -> SourceOf<typename P::Element>;
  { plan.target(peer) } -> std::same_as<typename P::Element*>;  // null: nothing goes there
};

// Of collectives that only move data, over a DirectTransport.
struct PushSchedule {
  // The work is dealt out where there are no parts. Peers store into the outputs; the input of a broadcast is read by
  // them, too.
  static constexpr bool dealsOut(Collective) { return true; }
  static constexpr Windows windows(Collective collective) {
    return {.in = collective == Collective::broadcast, .out = true};
  }
  static constexpr Movement movement(Volume const& of) {
    auto const toOne = of.part();
    Traffic traffic{.part = toOne, .sent = toOne * of.peers(), .stored = toOne * of.peers(), .local = toOne};
    bool const handsOn = of.collective == Collective::broadcast;
    // Each of the others loads its share from the root and stores it to all.
    if (handsOn) traffic = {toOne, of.ranks > 1 ? toOne : 0, toOne, toOne / of.others()};
    return {.traffic = traffic, .pace = Pace::stream, .loads = handsOn};
  }

  // A broadcast is shared out: every rank hands a part of it on.
  static constexpr bool relays = true;

  // By all threads of the blocks: meets the same block of every peer, stores, and meets it again. Bulk copies need
  // whole blocks, and elements as they are; where the GPU has none, or an address is no multiple of 16 bytes, threads
  // copy instead.
  template <DirectTransport Tr, int Ranks, BlockSet B, PushPlan P>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, P const& plan) {
    DirectRound const round(team, blocks);
    if constexpr (!std::same_as<decltype(plan.send(0)), View<typename P::Element const>>) {
      static_assert(!impl::isBulkMemory<Tr>, "bulk copies move elements as they are: a prologue needs PeerMemory");
      pushPrepared<Tr::unroll, Ranks>(team, blocks, plan);
    } else if constexpr (impl::isBulkMemory<Tr>) {
      static_assert(std::same_as<std::remove_cvref_t<decltype(blocks.block())>, BlockGroup>,
                    "bulk copies are the work of whole blocks");
      pushBulk<Tr, Ranks>(team, blocks, plan);
    } else if constexpr (P::sameToAll) {
      pushSame<Tr::unroll, Ranks>(team, blocks, plan);
    } else {
      pushRest<Ranks>(team, blocks, plan, NothingDone{});
    }
    round.finish();
  }

 private:
  struct NothingDone {
    MSCCLPP_DEVICE std::uint64_t operator()(std::uint64_t) const { return 0; }
  };

  template <class P>
  MSCCLPP_DEVICE static std::uint64_t bytesFor(P const& plan, int peer) {
    auto const part = plan.send(peer);
    return plan.target(peer) == nullptr || plan.target(peer) == part.data ? 0 : part.bytes();
  }

  template <int Ranks>
  MSCCLPP_DEVICE static int peerAt(DeviceTeam const& team, int distance) {
    return team.peerAt(distance, Ranks != 0 ? Ranks : team.size);
  }

  // Each payload is read once and stored to all peers.
  template <unsigned Unroll, int Ranks, class B, class P>
  MSCCLPP_DEVICE static void pushSame(DeviceTeam const& team, B const& blocks, P const& plan) {
    int const ranks = Ranks != 0 ? Ranks : team.size;
    auto const part = plan.send(team.rank);
    auto addresses = reinterpret_cast<std::uintptr_t>(part.data);
    for (int peer = 0; peer < ranks; ++peer) addresses |= reinterpret_cast<std::uintptr_t>(plan.target(peer));
    if (addresses % 16 != 0) return pushRest<Ranks>(team, blocks, plan, NothingDone{});

    auto const* const from = reinterpret_cast<Payload<4> const*>(part.data);
    std::uint64_t const count = part.bytes() / 16;
    std::uint64_t const stride = blocks.size();
    for (std::uint64_t first = blocks.rank(); first < count; first += Unroll * stride) {
      Payload<4> held[Unroll];
      MSCCLPP_UNROLL
      for (unsigned u = 0; u < Unroll; ++u) {
        if (first + u * stride < count) held[u] = from[first + u * stride];
      }
      MSCCLPP_UNROLL
      for (int distance = 1; distance <= ranks; ++distance) {
        auto* const to = reinterpret_cast<Payload<4>*>(plan.target(peerAt<Ranks>(team, distance)));
        if (to == nullptr || to == from) continue;
        MSCCLPP_UNROLL
        for (unsigned u = 0; u < Unroll; ++u) {
          if (first + u * stride < count) to[first + u * stride] = held[u];
        }
      }
    }
    pushRest<Ranks>(team, blocks, plan, [&](std::uint64_t) { return count * 16; });
  }

  // What a prologue makes of the input; once for all, where all get the same.
  template <unsigned Unroll, int Ranks, class B, class P>
  MSCCLPP_DEVICE static void pushPrepared(DeviceTeam const& team, B const& blocks, P const& plan) {
    using T = typename P::Element;
    int const ranks = Ranks != 0 ? Ranks : team.size;
    auto const threads = blocks.block().size();
    std::uint64_t const tile = std::uint64_t{threads} * Unroll * 16;
    for (int distance = 1; distance <= (P::sameToAll ? 1 : ranks); ++distance) {
      auto const part = plan.send(peerAt<Ranks>(team, distance));
      auto const reader = readerOf<4, 16>(part);
      for (std::uint64_t at = blocks.blockRank() * tile; at < part.bytes(); at += blocks.blockCount() * tile) {
        auto const from = reader.window(at, tile);
        Payload<4> held[Unroll];
        MSCCLPP_UNROLL
        for (unsigned u = 0; u < Unroll; ++u) {
          auto const offset = (u * threads + blocks.block().rank()) * 16;
          if (offset < from.bytes) held[u] = reader.read(from, offset);
        }
        MSCCLPP_UNROLL
        for (int to = distance; to <= (P::sameToAll ? ranks : distance); ++to) {
          PayloadWriter<T, 4, 16> const writer({plan.target(peerAt<Ranks>(team, to)), part.count});
          auto const window = writer.window(at, tile);
          MSCCLPP_UNROLL
          for (unsigned u = 0; u < Unroll; ++u) {
            auto const offset = (u * threads + blocks.block().rank()) * 16;
            if (offset < window.bytes) writer.write(window, offset, held[u]);
          }
        }
      }
    }
  }

  // What is behind the first doneOf(bytes) bytes of each part.
  template <int Ranks, class B, class P, class DoneOf>
  MSCCLPP_DEVICE static void pushRest(DeviceTeam const& team, B const& blocks, P const& plan, DoneOf doneOf) {
    int const ranks = Ranks != 0 ? Ranks : team.size;
    for (int distance = 1; distance <= ranks; ++distance) {
      int const peer = peerAt<Ranks>(team, distance);
      auto const bytes = bytesFor(plan, peer);
      auto const done = minimum(doneOf(bytes), bytes);
      copy(blocks, reinterpret_cast<std::byte*>(plan.target(peer)) + done,
           reinterpret_cast<std::byte const*>(plan.send(peer).data) + done, bytes - done);
    }
  }

  // One chunk after the other of what this block sends: every blockCount'th of each part.
  template <int Ranks, class P, unsigned Chunk>
  class Chunks {
   public:
    MSCCLPP_DEVICE Chunks(DeviceTeam const& team, P const& plan, unsigned block, unsigned blocks)
        : team_(team), plan_(plan), block_(block), blocks_(blocks) {
      enter();
    }
    MSCCLPP_DEVICE bool done() const { return distance_ > parts(); }
    MSCCLPP_DEVICE std::byte const* source() const { return source_ + at_; }
    MSCCLPP_DEVICE std::uint64_t offset() const { return at_; }
    MSCCLPP_DEVICE std::uint32_t bytes() const {
      return static_cast<std::uint32_t>(minimum<std::uint64_t>(Chunk, bytes_ - at_));
    }
    MSCCLPP_DEVICE int distance() const { return distance_; }
    MSCCLPP_DEVICE void next() {
      at_ += std::uint64_t{blocks_} * Chunk;
      if (at_ < bytes_) return;
      ++distance_;
      enter();
    }

   private:
    // What goes to all is one part; otherwise there is one for each rank, the own one last.
    MSCCLPP_DEVICE int parts() const { return P::sameToAll ? 1 : Ranks != 0 ? Ranks : team_.size; }
    MSCCLPP_DEVICE void enter() {
      for (; distance_ <= parts(); ++distance_) {
        int const peer = peerAt<Ranks>(team_, distance_);
        source_ = reinterpret_cast<std::byte const*>(plan_.send(peer).data);
        bytes_ = (P::sameToAll ? plan_.send(peer).bytes() : bytesFor(plan_, peer)) / 16 * 16;
        at_ = std::uint64_t{block_} * Chunk;
        if (at_ < bytes_) return;
      }
    }

    DeviceTeam const& team_;
    P const& plan_;
    unsigned block_;
    unsigned blocks_;
    int distance_ = 1;
    std::byte const* source_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::uint64_t at_ = 0;
  };

  // Thread 0 of the block starts all copies; the last bytes of a part are moved by all threads.
  template <class Tr, int Ranks, class B, class P>
  MSCCLPP_DEVICE static void pushBulk(DeviceTeam const& team, B const& blocks, P const& plan) {
    int const ranks = Ranks != 0 ? Ranks : team.size;
    std::uintptr_t addresses = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      addresses |= reinterpret_cast<std::uintptr_t>(plan.target(peer));
      addresses |= reinterpret_cast<std::uintptr_t>(plan.send(peer).data);
    }
    if (!hasBulkCopies() || addresses % 16 != 0) {
      return pushRest<Ranks>(team, blocks, plan, NothingDone{});
    }

    constexpr unsigned stages = Tr::stages;
    struct Loaded {
      BulkBarrier stage[stages];
    };
    struct Slot;
    auto& loaded = arch::blockShared<Loaded, Slot>();
    auto const group = blocks.block();
    if (group.rank() == 0) {
      auto* const buffer = arch::dynamicShared();
      for (unsigned s = 0; s < stages; ++s) loaded.stage[s].init(1);
      // What this kernel has written before is sent as well.
      bulkFence();
      using Walk = Chunks<Ranks, P, Tr::chunk>;
      Walk ahead(team, plan, blocks.blockRank(), blocks.blockCount());
      unsigned loads = 0;
      auto const load = [&] {
        auto& barrier = loaded.stage[loads % stages];
        barrier.arriveExpect(ahead.bytes());
        bulkLoad(buffer + loads % stages * Tr::chunk, ahead.source(), ahead.bytes(), barrier);
        ahead.next();
        ++loads;
      };
      // Few loads ahead suffice, since they are local; the other stages hold what is on its way to the peers.
      constexpr unsigned early = 2;
      while (loads < early && !ahead.done()) load();
      unsigned stored = 0;
      for (Walk now(team, plan, blocks.blockRank(), blocks.blockCount()); !now.done(); now.next(), ++stored) {
        auto const stage = stored % stages;
        loaded.stage[stage].wait(team.watch, stored / stages % 2);
        for (int distance = now.distance(); distance <= ranks; ++distance) {
          int const peer = peerAt<Ranks>(team, distance);
          if (bytesFor(plan, peer) != 0) {
            bulkStore(reinterpret_cast<std::byte*>(plan.target(peer)) + now.offset(), buffer + stage * Tr::chunk,
                      now.bytes());
          }
          if (!P::sameToAll) break;
        }
        bulkCommit();
        if (ahead.done()) continue;
        // The stage that comes next is free once its last store has been read.
        bulkWaitRead<stages - early>();
        load();
      }
      bulkWait<0>();
      for (unsigned s = 0; s < stages; ++s) loaded.stage[s].invalidate();
    }
    pushRest<Ranks>(team, blocks, plan, [](std::uint64_t bytes) { return bytes / 16 * 16; });
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
