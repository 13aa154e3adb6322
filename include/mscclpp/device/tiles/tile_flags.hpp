// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counters of arrivals for tiles, on every rank of a group: who has written a tile for a rank counts that rank's
// counter of it up, who wants to read it waits for the number. Made by the host (host/tile_flags.hpp).
//
//   auto const round = flags.begin(thisGrid());   waits for the kernel ahead in the stream
//   round.ready(rank)                             before this round's first write into that rank's memory
//   round.arrive(rank, tile, times)               what was written for it is there; counts as so many arrivals
//   round.await(tile, arrivals)                   what others have written for it may be read; returns how many came.
//                                                 A rank behind these: that it comes from, for reports
//   round.ticket(group)                           0, 1, 2, ... in the order in which groups of this rank ask
//   round.end()
//
// TileRound(flags, blocks, absent): a round without some of the ranks: `absent`, in this device's memory, has a number
// for each, not 0 where it takes no part, and is the same on all others. Nobody waits for those, and nothing is written
// to them; a rank that has been absent stays so, since its rounds are behind.
//
// All threads of the blocks call begin and end, once a kernel (or on both sides of a gridBarrier); all ranks begin each
// round. Grids may differ between ranks and launches. One thread calls ready, arrive and await, all of a group ticket.
// Counters begin each round at zero, and nothing is passed from the host, so graphs can be replayed.
//
// Order. ready: the rank's kernels before this round have ended, so all memory that tiles are written to is free; its
// readers need no flag of their own. arrive releases, in the scope of the system: it stands behind a barrier of those
// who have written. Lanes of a warp that arrive together, each where it likes, do so behind one fence of the warp.
// Where bulk stores have, their thread calls bulkWait() ahead of it; bulkWaitRead() only tells that the source has been
// read, and the flag would overtake the data. await acquires: others may read behind a barrier; the thread that starts
// bulk loads from there calls bulkFence() first.
//
// Cost: a store per peer and launch; arrive an addition that nobody waits for; ready and await a load where it has
// come. end waits until all peers have begun the round, as they long have where data was exchanged, and then clears the
// counters of the round before: their last arrivals have been made by then, awaited or not, and the next come once this
// rank has begun the round after this one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/device/epoch.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/group_ops.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/layout/tile_flags_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <BlockSet B>
class TileRound;

// Taken by value and passed on by reference, as DeviceTeam.
struct DeviceTileFlags : layout::TileFlagsHandle {
  DeviceTileFlags() = default;
  MSCCLPP_HOST_DEVICE DeviceTileFlags(layout::TileFlagsHandle const& handle) : layout::TileFlagsHandle(handle) {}

  template <BlockSet B>
  MSCCLPP_DEVICE TileRound<B> begin(B const& blocks) const {
    return TileRound<B>(*this, blocks);
  }

  // This rank's counters of rounds, one for each of layout.blocks blocks.
  MSCCLPP_DEVICE layout::RoundCounter* epochs() const {
    return reinterpret_cast<layout::RoundCounter*>(bases[rank] + layout.epochs);
  }
  // Where `source` tells `ofRank` the last round that it has begun.
  MSCCLPP_DEVICE std::uint64_t* begun(int ofRank, int source) const {
    return reinterpret_cast<std::uint64_t*>(bases[ofRank] + layout.begun) + source;
  }
  // The words of a round: a ticket, and the counters.
  MSCCLPP_DEVICE std::uint32_t* set(int ofRank, std::uint64_t round) const {
    return reinterpret_cast<std::uint32_t*>(bases[ofRank] + layout.sets) +
           static_cast<std::size_t>(round % 2) * layout.setWords;
  }
  MSCCLPP_DEVICE std::uint32_t* counter(int ofRank, std::uint64_t round, unsigned tile) const {
    return set(ofRank, round) + layout.ticketWords + tile;
  }
};

// A round, from DeviceTileFlags::begin() on.
template <BlockSet B>
class TileRound {
 public:
  MSCCLPP_DEVICE TileRound(DeviceTileFlags const& flags, B const& blocks, std::int32_t const* absent = nullptr)
      : flags_(flags), blocks_(blocks), absent_(absent) {
    using layout::Misuse;
    require(blocks.blockCount() <= flags.layout.blocks, flags.watch, -1, std::uint64_t(Misuse::tileBlocks),
            flags.layout.blocks, blocks.blockCount());
    auto const group = blocks.block();
    auto const read = loadEpoch(group, flags.epochs(), blocks.blockRank());
    require(arch::mayUse(flags.epochs()), flags.watch, -1, std::uint64_t(Misuse::sharedTeam), 0, 0);
    requireTogether(flags.watch, read.astray);
    number_ = read.rounds + 1;
    if (blocks.blockRank() != 0) return;
    for (int peer = static_cast<int>(group.rank()); peer < flags.size; peer += static_cast<int>(group.size())) {
      if (!isAbsent(peer)) store<Order::release, Scope::system>(flags.begun(peer, flags.rank), number_);
    }
  }

  // Whether a rank takes no part in the round; this one always does.
  MSCCLPP_DEVICE bool isAbsent(int rank) const {
    return absent_ != nullptr && rank != flags_.rank && absent_[rank] != 0;
  }
  MSCCLPP_DEVICE std::uint64_t number() const { return number_; }

  MSCCLPP_DEVICE void ready(int rank) const {
    requireRank(rank);
    if (rank == flags_.rank || isAbsent(rank)) return;
    auto const* const word = flags_.begun(flags_.rank, rank);
    poll(flags_.watch, {layout::WaitKind::tileRound, rank, 0, number_}, [&](std::uint64_t& seen) {
      seen = load<Order::acquire, Scope::system>(word);
      return seen >= number_;
    });
  }

  MSCCLPP_DEVICE void arrive(int rank, unsigned tile, std::uint32_t times = 1) const {
    requireRank(rank);
    requireTile(tile);
    reduceAdd<Order::release, Scope::system>(flags_.counter(rank, number_, tile), times);
  }

  MSCCLPP_DEVICE std::uint32_t await(unsigned tile, std::uint32_t arrivals, int rank = -1) const {
    requireTile(tile);
    auto const* const word = flags_.counter(flags_.rank, number_, tile);
    std::uint32_t count = 0;
    poll(flags_.watch, {layout::WaitKind::tile, rank, tile, arrivals}, [&](std::uint64_t& seen) {
      count = load<Order::acquire, Scope::system>(word);
      seen = count;
      return count >= arrivals;
    });
    return count;
  }

  template <SyncGroup G>
  MSCCLPP_DEVICE unsigned ticket(G const& group) const {
    unsigned mine = 0;
    if (group.rank() == 0) mine = fetchAdd<Order::relaxed, Scope::device>(flags_.set(flags_.rank, number_), 1u);
    return broadcast(group, mine, 0);
  }

  MSCCLPP_DEVICE void end() const {
    auto const group = blocks_.block();
    for (int peer = static_cast<int>(group.rank()); peer < flags_.size; peer += static_cast<int>(group.size())) {
      ready(peer);
    }
    syncWhole(group);
    auto* const before = flags_.set(flags_.rank, number_ - 1);
    for (unsigned i = blocks_.rank(); i < flags_.layout.setWords; i += blocks_.size()) {
      store<Order::relaxed, Scope::system>(before + i, 0u);
    }
    commitEpoch(flags_.epochs(), flags_.layout.blocks, blocks_, number_);
  }

 private:
  MSCCLPP_DEVICE void requireRank(int rank) const {
    requireAlone(rank >= 0 && rank < flags_.size, flags_.watch, -1, std::uint64_t(layout::Misuse::tileRank),
                 static_cast<std::uint64_t>(flags_.size), static_cast<std::uint64_t>(rank));
  }
  MSCCLPP_DEVICE void requireTile(unsigned tile) const {
    requireAlone(tile < flags_.layout.tiles, flags_.watch, -1, std::uint64_t(layout::Misuse::tile), flags_.layout.tiles,
                 tile);
  }

  DeviceTileFlags const& flags_;
  B blocks_;
  std::int32_t const* absent_;
  std::uint64_t number_ = 0;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
