// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tile flags as kernels receive them, by value: how many there are, and where each rank's are mapped here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/layout/round_counter.hpp"
#include "mscclpp/layout/watch.hpp"

namespace mscclpp::layout {

// What flags are made for.
struct TileFlagsSize {
  std::uint32_t tiles = 0;
  std::uint32_t blocks = 0;  // of the largest grid that will use them

  friend constexpr bool operator==(TileFlagsSize const&, TileFlagsSize const&) = default;
};

// Offsets in bytes from the start of a rank's memory, the same on every rank. It is zero when created and belongs to
// the kernels afterwards.
struct TileFlagsLayout {
  std::uint32_t ranks;
  std::uint32_t tiles;
  std::uint32_t blocks;
  std::uint32_t setWords;  // uint32: a ticket with the rest of its line, a counter for each tile
  std::uint64_t begun;     // uint64[ranks]: the last round that the rank has begun
  std::uint64_t sets;      // two, that take turns
  std::uint64_t total;

  // RoundCounter[blocks] at the very start; equal for all blocks between kernels.
  static constexpr std::uint64_t epochs = 0;
  static constexpr std::uint32_t ticketWords = 32;

  // For so many ranks. The parts, and each of the two sets, begin at multiples of 128 bytes.
  static constexpr TileFlagsLayout make(std::uint32_t ranks, TileFlagsSize const& size) {
    constexpr std::uint64_t line = 128;
    TileFlagsLayout l{};
    l.ranks = ranks;
    l.tiles = size.tiles;
    l.blocks = size.blocks;
    l.setWords = ticketWords + roundUp(size.tiles, ticketWords);
    l.begun = roundUp<std::uint64_t>(epochs + sizeof(RoundCounter) * size.blocks, line);
    l.sets = roundUp<std::uint64_t>(l.begun + sizeof(std::uint64_t) * ranks, line);
    l.total = l.sets + 2 * sizeof(std::uint32_t) * std::uint64_t{l.setWords};
    return l;
  }
};

struct TileFlagsHandle {
  std::int32_t rank;              // of this process in the group
  std::int32_t size;              // ranks in the group
  Watch* watch;                   // of this rank
  TileFlagsLayout layout;         // the same on every rank
  std::byte* bases[maxTeamSize];  // by rank; [rank] is the own memory, entries from `size` on are null
};

}  // namespace mscclpp::layout
