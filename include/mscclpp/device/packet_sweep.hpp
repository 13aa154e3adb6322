// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clears the packets of a team now and then, so that none is ever taken for that of a round 2^31 later, which has the
// same flag: slots that small messages do not reach keep what a large one left there.
//
// Two rounds in each layout::sweepPeriod are for it, one for each half of the workspace. A call that takes part in one
// of them clears its block's slices, and those of blocks that have none in this launch, where no peer writes them:
// - of packets, when its own part of that round is on its way: the half of the next round, and waits until all peers
//   have come as far. Behind the round's last read it would cost every call (H200: 0.06 of 1.58 us for an all-reduce of
//   1 KiB), here the comparison is made while packets are awaited;
// - of anything else, before it tells its peers in its last round: both halves, since nobody sends packets in such a
//   call.
// Every round belongs to some call, so a slot is never older than three periods, of the eight in which flags come
// again. It takes as long as writing the slices once; all other rounds pay one comparison.
#pragma once

#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/team.hpp"
#include "mscclpp/device/thread.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/layout/round_counter.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// By all threads of the group: slots at `first` hold no packet.
template <Group G>
MSCCLPP_DEVICE void clearSlots(G const& group, std::byte* first, std::uint64_t bytes) {
  for (auto at = std::uint64_t{group.rank()} * 16; at < bytes; at += std::uint64_t{group.size()} * 16) {
    storeWords4(reinterpret_cast<Words4*>(first + at), Words4{});
  }
}

namespace impl {

// A region of packets as one block clears it.
struct PacketSlices {
  std::byte* region;
  std::uint32_t slice;
};

// What the blocks `block`, `block + grid`, ... have in the halves `first` to `last`, 0 that of even rounds. Its
// arguments are numbers, since a copy of a team would go on the stack.
template <class G>
MSCCLPP_COLD_DEVICE void clearPackets(G group, PacketSlices packets, PacketSlices lines, std::uint32_t blocks,
                                      std::uint32_t block, std::uint32_t grid, unsigned first, unsigned last) {
  for (auto half = first; half <= last; ++half) {
    for (auto const& [region, slice] : {packets, lines}) {
      for (auto at = block; at < blocks; at += grid) {
        clearSlots(group, region + (half * std::uint64_t{blocks} + at) * slice, slice);
      }
    }
  }
}

}  // namespace impl

// The halves `first` to `last`, 0 that of even rounds. All threads of the block call, and go on when all have done
// their part. Where one has given up, nobody goes on with the team: it need not be waited for.
template <BlockSet B>
MSCCLPP_DEVICE void clearPackets(DeviceTeam const& team, B const& blocks, unsigned first, unsigned last) {
  auto const& layout = team.layout;
  auto* const own = team.workspace(team.rank);
  blocks.block().sync();
  impl::clearPackets(blocks.block(), {own + layout.packets, layout.packetSlice}, {own + layout.lines, layout.lineSlice},
                     layout.blocks, blocks.blockRank(), blocks.blockCount(), first, last);
  fence<Order::acquireRelease, Scope::system>();
  blocks.block().sync();
}

// Of what all threads find alike, but the compiler sees that by a vote only; without, it gathers warps before each
// barrier of the kernel (H200: 0.1 of 1.56 us for an all-reduce of 1 KiB).
MSCCLPP_DEVICE bool isDue(bool sweeps) { return arch::warpAny(sweeps); }

// In a call without packets that has the rounds `first` to `last`, before it tells its peers in the last. All threads
// of the block call.
template <BlockSet B>
MSCCLPP_DEVICE void sweepBetween(DeviceTeam const& team, B const& blocks, std::uint64_t first, std::uint64_t last) {
  if (isDue(layout::sweepsPackets(first, last))) clearPackets(team, blocks, 0, 1);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
