// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Barriers wider than a block. Both order memory: what any thread wrote before it, every thread sees after it.
//
//   gridBarrier(team, grid)     all blocks of this kernel, which must be resident together; one atomic per block and
//                               a poll
//   teamBarrier(team, blocks)   every rank of the team, block by block: block b meets block b of each peer; one release
//                               store per peer and a poll. Counts as a round of the team
// All threads of the blocks call.
#pragma once

#include <cstdint>

#include "mscclpp/device/device_syncer.hpp"
#include "mscclpp/device/epoch.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/team.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Of a DeviceTeam, too.
template <BlockSet B>
MSCCLPP_DEVICE void gridBarrier(layout::TeamHandle const& team, B const& blocks) {
  if constexpr (SyncGroup<B>) return blocks.sync();
  auto* const words = team.workspaces[team.rank] + team.layout.gridBarrier;
  reinterpret_cast<DeviceSyncer*>(words)->meet(blocks.block(), blocks.blockCount(), team.watch);
}

// Tells block `block` of every peer that this block has finished `phase` of `epoch`; what the block's threads wrote
// before is visible to whoever sees it.
template <BlockSet B>
MSCCLPP_DEVICE void publishPhase(DeviceTeam const& team, B const& blocks, unsigned phase, std::uint64_t epoch) {
  auto const group = blocks.block();
  syncWhole(group);
  for (int peer = static_cast<int>(group.rank()); peer < team.size; peer += static_cast<int>(group.size())) {
    if (peer == team.rank) continue;
    store<Order::release, Scope::system>(team.signal(peer, phase, blocks.blockRank(), team.rank), epoch);
  }
}

// One thread: returns when `source` has told block `block` of this rank that it has published `phase` of `epoch`, or of
// a later one.
MSCCLPP_DEVICE void awaitSignal(DeviceTeam const& team, unsigned phase, unsigned block, int source, std::uint64_t epoch,
                                layout::WaitKind kind = layout::WaitKind::teamSignal) {
  auto const* const word = team.signal(team.rank, phase, block, source);
  poll(team.watch, {kind, source, phase, epoch}, [&](std::uint64_t& seen) {
    seen = load<Order::acquire, Scope::system>(word);
    return seen >= epoch;
  });
}

// Returns when the same block of every peer has published `phase` of `epoch`, or a later one.
template <BlockSet B>
MSCCLPP_DEVICE void awaitPhase(DeviceTeam const& team, B const& blocks, unsigned phase, std::uint64_t epoch,
                               layout::WaitKind kind = layout::WaitKind::teamSignal) {
  auto const group = blocks.block();
  for (int peer = static_cast<int>(group.rank()); peer < team.size; peer += static_cast<int>(group.size())) {
    if (peer != team.rank) awaitSignal(team, phase, blocks.blockRank(), peer, epoch, kind);
  }
  syncWhole(group);
}

template <BlockSet B>
MSCCLPP_DEVICE void teamBarrier(DeviceTeam const& team, B const& blocks) {
  auto const epoch = beginRounds(team, blocks, 1);
  publishPhase(team, blocks, 0, epoch);
  commitEpoch(team, blocks, epoch);
  awaitPhase(team, blocks, 0, epoch, layout::WaitKind::teamBarrier);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
