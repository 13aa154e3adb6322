// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The symmetric memory that the collectives of one team work in: what they ask for, and where each part lies.
//
// Every rank of a team owns one workspace of the same layout and maps those of all others. It is zero when created and
// belongs to the kernels afterwards; the host never writes it again, so a captured graph may be replayed at any time.
// Regions hold one kind of content each for ever: the flag position of one packet kind must never be the data position
// of another, or old data could pass for a flag.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/layout/round_counter.hpp"

namespace mscclpp::layout {

// What a collective needs: bytes that each block must be able to receive in one round. Combine with `merge`; the host
// sizes the workspace from it.
struct WorkspaceRequirement {
  std::uint32_t blocks = 0;       // largest grid that will use it
  std::uint64_t packetBytes = 0;  // LL8 and LL16 packets, per block
  std::uint64_t lineBytes = 0;    // LL128 lines, per block
  std::uint64_t stageBytes = 0;   // plain data, per block
  std::uint32_t multicast = 0;    // 1: the workspaces have a multicast address too

  friend constexpr bool operator==(WorkspaceRequirement const&, WorkspaceRequirement const&) = default;
};

constexpr WorkspaceRequirement merge(WorkspaceRequirement const& a, WorkspaceRequirement const& b) {
  return {std::max(a.blocks, b.blocks), std::max(a.packetBytes, b.packetBytes), std::max(a.lineBytes, b.lineBytes),
          std::max(a.stageBytes, b.stageBytes), std::max(a.multicast, b.multicast)};
}

// A collective has at most a scatter phase and a gather phase, each with its own signals. In a pipeline, ranks also
// tell themselves how far they are, in the third.
inline constexpr std::uint32_t workspacePhases = 3;

// Largest slice of one block, so that offsets within it are 32 bits.
inline constexpr std::uint64_t maxSliceBytes = std::uint64_t{1} << 31;

// Offsets in bytes from the start of a workspace. Plain data: computed once by the host, passed to kernels by value.
// What small collectives use comes first: a kernel's parameters are read through a cache that is cold at every launch.
//
// A region is two halves of one slice per block, so what a block writes never depends on the size of its grid.
struct WorkspaceLayout {
  std::uint32_t blocks;
  std::uint32_t ranks;
  std::uint64_t lines;
  std::uint64_t packets;
  std::uint32_t lineSlice;  // bytes of one block's part of one half, a multiple of 128
  std::uint32_t packetSlice;
  std::uint32_t stageSlice;
  std::uint32_t wholeLines;  // 1: every link of the team delivers 128-byte lines whole, which LL128 needs
  std::uint64_t signals;     // uint64[phases][blocks][ranks]: last epoch that the rank has published to this block
  std::uint64_t stage;
  std::uint64_t gridBarrier;  // uint32[2]: arrivals, generation
  std::uint64_t total;

  // RoundCounter[blocks] at the very start; equal for all blocks between kernels.
  static constexpr std::uint64_t epochs = 0;

  // The least multiple of `to` that is no less than `bytes`.
  static constexpr std::uint64_t alignUp(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

  // `need` asks for at most maxSliceBytes per block and region.
  static constexpr WorkspaceLayout make(std::uint32_t ranks, WorkspaceRequirement const& need) {
    WorkspaceLayout l{};
    l.ranks = ranks;
    l.blocks = need.blocks;
    l.lineSlice = static_cast<std::uint32_t>(alignUp(need.lineBytes, 128));
    l.packetSlice = static_cast<std::uint32_t>(alignUp(need.packetBytes, 128));
    l.stageSlice = static_cast<std::uint32_t>(alignUp(need.stageBytes, 128));
    l.gridBarrier = alignUp(epochs + sizeof(RoundCounter) * need.blocks, 128);
    l.signals = l.gridBarrier + 128;
    l.packets = alignUp(l.signals + 8ull * workspacePhases * need.blocks * ranks, 4096);
    l.lines = l.packets + 2ull * l.packetSlice * need.blocks;
    l.stage = l.lines + 2ull * l.lineSlice * need.blocks;
    l.total = l.stage + 2ull * l.stageSlice * need.blocks;
    return l;
  }
};

}  // namespace mscclpp::layout
