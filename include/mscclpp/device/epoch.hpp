// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The number of the current round of a team, kept in device memory.
//
// Every round of every collective on a team has its own epoch, the same on all ranks. It chooses the half of each
// workspace region and is the flag of packets and signals, so nothing has to be cleared, and a replayed graph goes on
// where the last kernel stopped. Two halves are enough, because in every round every block exchanges something with the
// same block of every peer, and a barrier of its own threads lies between its last read of a round and its first write
// of the next: who writes round e+2 has heard in round e+1 from a peer that had finished reading round e. The simulated
// machine looks whether blocks do (arch::HeardPeers), and that one kernel at a time uses the counters (arch::mayUse).
//
// There is one counter per block, equal for all blocks between kernels whatever their grids were: each block also
// advances those that have no block in this launch.
#pragma once

#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/packet_sweep.hpp"
#include "mscclpp/device/round_counter.hpp"
#include "mscclpp/device/team.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/team_rules.hpp"
#else
#include "mscclpp/device/arch/sim/team_rules.hpp"
#endif

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// What the counter of a block says. All its threads call. It first waits for the kernel ahead in the stream, where
// launches overlap, and for the other threads of the block, which ends the round before it in the same kernel. The load
// is only begun here: code that does not need the number at once hides its latency.
template <SyncGroup G>
MSCCLPP_DEVICE layout::RoundCounter loadEpoch(G const& group, layout::RoundCounter const* epochs, unsigned block) {
  waitForPreviousKernel();
  group.sync();
  return loadRounds(epochs + arch::perThread(block));
}

// Rounds of the team done so far, as loadEpoch(); the caller has yet to requireTogether().
template <BlockSet B>
MSCCLPP_DEVICE layout::RoundCounter beginReadEpoch(DeviceTeam const& team, B const& blocks) {
  auto const block = blocks.blockRank();
  require(blocks.blockCount() <= team.layout.blocks, team.watch, -1, std::uint64_t(layout::Misuse::blockCount),
          team.layout.blocks, blocks.blockCount());
  auto const read = loadEpoch(blocks.block(), team.epochs(), block);
  require(arch::mayUse(team.epochs()), team.watch, -1, std::uint64_t(layout::Misuse::sharedTeam), 0, 0);
  return read;
}

// Begins a call of so many rounds without packets, and returns the epoch of the first.
template <BlockSet B>
MSCCLPP_DEVICE std::uint64_t beginRounds(DeviceTeam const& team, B const& blocks, std::uint64_t rounds) {
  auto const read = beginReadEpoch(team, blocks);
  requireTogether(team.watch, read.astray);
  auto const first = read.rounds + 1;
  sweepBetween(team, blocks, first, read.rounds + rounds);
  return first;
}

// Stores the epoch with which this call will end in the counters, one for each of `most` blocks. All threads of the
// block call, once; it begins with a barrier, so that every thread has read the old one. Best called while something
// else is on its way.
template <BlockSet B>
MSCCLPP_DEVICE void commitEpoch(layout::RoundCounter* epochs, unsigned most, B const& blocks, std::uint64_t epoch) {
  auto const group = blocks.block();
  auto const count = blocks.blockCount();
  group.sync();
  for (unsigned i = blocks.blockRank() + group.rank() * count; i < most; i += group.size() * count) {
    storeRounds(epochs + i, epoch);
  }
}

// In all counters of the team.
template <BlockSet B>
MSCCLPP_DEVICE void commitEpoch(DeviceTeam const& team, B const& blocks, std::uint64_t epoch) {
  commitEpoch(team.epochs(), team.layout.blocks, blocks, epoch);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
