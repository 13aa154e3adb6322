// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the elements of a collective are dealt out: to rounds, blocks and threads, in slots of the transport.
//
// A tile is what one block handles in one round: `threads * Unroll` consecutive slots, thread by thread. Round r, block
// b of `blocks` has the tile that starts at slot (r * blocks + b) * tile. Every block goes through every round, and in
// each at least its first group of slots is exchanged, even when no data is left for it: the epochs rely on that.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/base/bits.hpp"

namespace mscclpp {

// One block's part of one round.
struct Tile {
  std::uint64_t first;      // slot, of all that are dealt out
  std::uint32_t valid;      // slots from there that hold data
  std::uint32_t exchanged;  // slots from there that are exchanged
};

// The tiles of one block, round by round: arithmetic alone.
struct TilePartition {
  std::uint64_t slots;  // to be dealt out
  std::uint32_t tile;   // slots per block and round
  std::uint32_t slotsPerGroup;
  std::uint32_t blocks;
  std::uint32_t block;

  // Slots of all blocks in a round, and so from one round's start to the next; whether no data is left behind the round
  // that starts there.
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t roundSlots() const { return std::uint64_t{blocks} * tile; }
  MSCCLPP_HOST_DEVICE constexpr bool isLast(std::uint64_t roundStart) const {
    return roundStart + roundSlots() >= slots;
  }
  // This block's tile in the round that starts at slot `roundStart`.
  MSCCLPP_HOST_DEVICE constexpr Tile at(std::uint64_t roundStart) const { return at(roundStart, slots); }
  // The same for one of several runs of slots that are dealt out together, the longest of which is `slots`.
  MSCCLPP_HOST_DEVICE constexpr Tile at(std::uint64_t roundStart, std::uint64_t ofThem) const {
    std::uint64_t const first = roundStart + std::uint64_t{block} * tile;
    auto const valid = first < ofThem ? static_cast<std::uint32_t>(minimum<std::uint64_t>(ofThem - first, tile)) : 0u;
    return {first, valid, valid < slotsPerGroup ? slotsPerGroup : valid};
  }
};

// Slots of one rank's share when `slots` are split over `ranks`, in groups of `group` slots that stay together.
MSCCLPP_HOST_DEVICE constexpr std::uint64_t shareSlots(std::uint64_t slots, std::uint32_t ranks, std::uint32_t group) {
  return ceilDiv<std::uint64_t>(ceilDiv<std::uint64_t>(slots, ranks), group) * group;
}

inline namespace MSCCLPP_BACKEND {

// Slots of a tile that one thread handles, and which of them take part. Threads from `threads` on handle none.
template <unsigned Count>
struct ThreadSlots {
  std::uint32_t slot[Count];
  bool active[Count];  // is exchanged
  bool valid[Count];   // holds data
};

// Slots `threads` apart, from `thread` on: neighbouring threads have neighbouring slots.
template <unsigned Count>
MSCCLPP_DEVICE ThreadSlots<Count> threadSlots(std::uint32_t thread, std::uint32_t threads, Tile const& tile) {
  ThreadSlots<Count> result;
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < Count; ++i) {
    auto const slot = i * threads + thread;
    result.slot[i] = slot;
    result.active[i] = thread < threads && slot < tile.exchanged;
    result.valid[i] = thread < threads && slot < tile.valid;
  }
  return result;
}

// The peers' workspaces, by distance, where their number is known: looked up before a wait, they cost nothing.
template <int Ranks>
struct PeerWorkspaces {
  static constexpr int count = Ranks > 1 ? Ranks - 1 : 0;
  std::byte* behind[count != 0 ? count : 1];

  MSCCLPP_DEVICE explicit PeerWorkspaces(DeviceTeam const& team) {
    MSCCLPP_UNROLL
    for (int k = 0; k < count; ++k) behind[k] = team.workspace(team.peerAt(1 + k, Ranks));
  }
};

// Puts the same payloads into this rank's row of all peers; by one put each, where the transport has such.
template <class Tr, int Ranks, class Session, unsigned Count, class P>
MSCCLPP_DEVICE void putSame(DeviceTeam const& team, PeerWorkspaces<Ranks> const& peers, Session const& session,
                            ThreadSlots<Count> const& slots, P const (&payloads)[Count]) {
  auto const row = static_cast<unsigned>(team.rank);
  if constexpr (putsToAll<Tr>) {
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Count; ++i) session.putToAll(row, slots.slot[i], payloads[i], slots.active[i]);
  } else {
    auto const putTo = [&](std::byte* workspace) {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < Count; ++i) session.put(workspace, row, slots.slot[i], payloads[i], slots.active[i]);
    };
    if constexpr (Ranks != 0) {
      MSCCLPP_UNROLL
      for (int k = 0; k < peers.count; ++k) putTo(peers.behind[k]);
    } else {
      for (int distance = 1; distance < team.size; ++distance) putTo(team.workspace(team.peerAt(distance, team.size)));
    }
  }
}

// Waits for what this rank has put into its own slots, where one put reaches all ranks.
template <class Session, unsigned Count>
MSCCLPP_DEVICE void receiveOwn(Session const& session, int rank, ThreadSlots<Count> const& slots) {
  Source sources[Count];
  typename Session::Received values[Count];
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < Count; ++i) {
    sources[i] = {rank, static_cast<unsigned>(rank), slots.slot[i], slots.active[i]};
  }
  session.receive(sources, values);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
