// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clears the packets of a team now and then, so that none is ever taken for that of a round 2^31 later, which has the
// same flag: slots that small messages do not reach keep what a large one left there.
//
// Two rounds in each layout::sweepPeriod are for it, one for each half of the workspace. A call that takes part in one
// of them clears its block's slices, and those of blocks that have none in this launch, where no peer writes them:
// - of packets, when it has read what came in that round: the half of that round, which nobody writes before this rank
//   has sent in the next one;
// - of anything else, before it tells its peers in its last round: both halves, which nobody writes in such a call.
// Every round belongs to some call, so a slot is never older than three periods, of the eight in which flags come
// again. It takes as long as writing the slices once; all other rounds pay one comparison, behind their last read.
#pragma once

#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/team.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/layout/round_counter.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// By the threads `thread`, `thread + threads`, ...: what the blocks `block`, `block + grid`, ... have in one half. With
// numbers for arguments, as a copy of a team would go on the stack.
MSCCLPP_COLD_DEVICE void clearSlices(std::byte* half, std::uint32_t slice, std::uint32_t blocks, std::uint32_t block,
                                     std::uint32_t grid, std::uint32_t thread, std::uint32_t threads) {
  for (; block < blocks; block += grid) {
    for (auto at = std::uint64_t{thread} * 16; at < slice; at += std::uint64_t{threads} * 16) {
      storeWords4(reinterpret_cast<Words4*>(half + std::uint64_t{block} * slice + at), Words4{});
    }
  }
}

// The halves `first` to `last`, 0 that of even rounds. All threads of the block call, and go on when all have
// done their part.
template <BlockSet B>
MSCCLPP_DEVICE void clearPackets(DeviceTeam const& team, B const& blocks, unsigned first, unsigned last) {
  auto const group = blocks.block();
  auto const& layout = team.layout;
  syncWhole(group);
  for (auto half = first; half <= last; ++half) {
    auto const clear = [&](std::uint64_t region, std::uint32_t slice) {
      clearSlices(team.workspace(team.rank) + region + half % 2 * std::uint64_t{layout.blocks} * slice, slice,
                  layout.blocks, blocks.blockRank(), blocks.blockCount(), group.rank(), group.size());
    };
    clear(layout.packets, layout.packetSlice);
    clear(layout.lines, layout.lineSlice);
  }
  fence<Order::acquireRelease, Scope::system>();
  syncWhole(group);
}

// At the end of the round whose packets have that flag, behind its last read. All threads of the block call.
template <BlockSet B>
MSCCLPP_DEVICE void sweepAfter(DeviceTeam const& team, B const& blocks, std::uint32_t flag) {
  auto const round = roundOf(flag);
  if (layout::sweepsPackets(round)) {
    clearPackets(team, blocks, round % 2, round % 2);
  }
}

// In a call without packets that has the rounds `first` to `last`, before it tells its peers in the last. All threads
// of the block call.
template <BlockSet B>
MSCCLPP_DEVICE void sweepBetween(DeviceTeam const& team, B const& blocks, std::uint64_t first, std::uint64_t last) {
  if (layout::sweepsPackets(first, last)) clearPackets(team, blocks, 0, 1);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
