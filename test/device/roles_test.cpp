// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Roles: who has which, under which numbers. Tickets: every tile comes to one group, range by range.
#include "mscclpp/device/tiles/roles.hpp"

#include <utility>
#include <vector>

#include "mscclpp/device/tiles/tickets.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

// What a thread was in a role: its number, and of how many. Zeros where it was not called.
struct Part {
  unsigned rank, size, calls;
  friend bool operator==(Part const&, Part const&) = default;
};

template <bool OfBlock>
struct RolesKernel {
  unsigned first;
  MSCCLPP_DEVICE void operator()(Part* parts) const {
    auto const me = thisGrid().rank();
    unsigned calls = 0;
    auto const fill = [&](Part& part, auto const& group) {
      if constexpr (OfBlock) group.sync();
      part = {group.rank(), group.size(), ++calls};
    };
    auto const one = [&](auto const& group) { fill(parts[2 * me], group); };
    auto const other = [&](auto const& group) { fill(parts[2 * me + 1], group); };
    if constexpr (OfBlock) {
      Roles{first}.split(thisBlock(), one, other);
    } else {
      Roles{first}.split(thisGrid(), one, other);
    }
  }
};

// Of units of 32 threads, warps of a block or blocks of a grid.
template <bool OfBlock>
void checkRoles(unsigned first, unsigned units) {
  CAPTURE(first);
  CAPTURE(units);
  bool const both = units <= first;
  std::vector<Part> expected;
  for (unsigned thread = 0; thread < 32 * units; ++thread) {
    bool const one = thread < 32 * first;
    expected.push_back(both || one ? Part{thread, 32 * (both ? units : first), 1} : Part{});
    expected.push_back(both  ? Part{thread, 32 * units, 2}
                       : one ? Part{}
                             : Part{thread - 32 * first, 32 * (units - first), 1});
  }
  forEachRank(1, [&](Rank& rank) {
    GpuBuffer<Part> const parts(rank.device, expected.size());
    LaunchShape const shape{.blocks = OfBlock ? 1 : units, .threads = OfBlock ? 32 * units : 32};
    launch(rank.stream, shape, RolesKernel<OfBlock>{first}, parts.data());
    rank.synchronize();
    CHECK(copyToHost(parts) == expected);
  });
}

// Counts how often each tile of two ranges comes to a group; some tiles are empty.
MSCCLPP_HOST_DEVICE constexpr TileGrid moves() {
  return {.rows = 7, .columns = 4, .tileRows = 1, .tileColumns = 4, .ranks = 3};
}
MSCCLPP_HOST_DEVICE constexpr TileGrid products() {
  return {.rows = 7, .columns = 9, .tileRows = 2, .tileColumns = 4, .ranks = 3};
}

struct TicketsKernel {
  bool byWarp;
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags, unsigned* moved, unsigned* made) const {
    auto const round = flags.begin(thisGrid());
    byWarp ? go(flags, round, thisWarp(), moved, made) : go(flags, round, thisBlock(), moved, made);
    thisBlock().sync();
    round.end();
  }

 private:
  template <class R, class G>
  MSCCLPP_DEVICE static void go(DeviceTileFlags const& flags, R const& round, G const& group, unsigned* moved,
                                unsigned* made) {
    Tickets tickets(round, group);
    for (auto const& tile : tilesOf<OwnOnly<>>(moves(), flags.rank, tickets)) count(group, moved, tile);
    for (auto const& tile : tilesOf<OwnFirst<1>>(products(), flags.rank, tickets)) count(group, made, tile);
  }
  template <class G>
  MSCCLPP_DEVICE static void count(G const& group, unsigned* counts, TileAt const& tile) {
    if (group.rank() == 0) fetchAdd<Order::relaxed, Scope::device>(counts + tile.number, 1u);
  }
};

// One group has all tiles, in the order of each range: notes them.
struct InTurnKernel {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags, unsigned* noted) const {
    auto const round = flags.begin(thisGrid());
    Tickets tickets(round, thisBlock());
    unsigned n = 0;
    for (auto const& tile : tilesOf<OwnOnly<>>(moves(), flags.rank, tickets)) noted[n++] = tile.number;
    for (auto const& tile : tilesOf<OwnFirst<1>>(products(), flags.rank, tickets)) noted[n++] = tile.number;
    round.end();
  }
};

// The tiles of a rank that are not empty.
template <class Order>
std::vector<unsigned> numbersOf(TileGrid const& grid, int rank) {
  std::vector<unsigned> numbers;
  for (auto const& tile : TileRange<Order>(grid, rank, 0, 1)) numbers.push_back(tile.number);
  return numbers;
}

std::vector<unsigned> counted(std::vector<unsigned> const& numbers, std::size_t size, unsigned times) {
  std::vector<unsigned> counts(size);
  for (auto const number : numbers) counts[number] = times;
  return counts;
}

}  // namespace

TEST_CASE("blocks of the grid and warps of the block in two roles") {
  if (!canRun(1)) return;
  for (auto const& [first, units] : {std::pair{1u, 4u}, {3u, 4u}, {4u, 4u}, {5u, 2u}, {0u, 3u}, {1u, 1u}}) {
    checkRoles<false>(first, units);
    checkRoles<true>(first, units);
  }
}

TEST_CASE("by ticket each tile comes to one group in every round") {
  if (!canRun(3)) return;
  forEachRank(3, [](Rank& rank) {
    constexpr unsigned rounds = 4;
    TileFlags const flags(rank.communicator, {.tiles = 1, .blocks = 3});
    GpuBuffer<unsigned> const moved(rank.device, moves().count()), made(rank.device, products().count());
    rank.meet();
    for (unsigned round = 0; round < rounds; ++round) {
      rank.pace();
      launch(rank.stream, {.blocks = 1 + round % 3, .threads = 64}, TicketsKernel{round % 2 == 1}, flags.deviceHandle(),
             moved.data(), made.data());
    }
    rank.synchronize();
    CHECK(copyToHost(moved) == counted(numbersOf<OwnOnly<>>(moves(), rank.rank), moves().count(), rounds));
    CHECK(copyToHost(made) == counted(numbersOf<OwnFirst<1>>(products(), rank.rank), products().count(), rounds));
  });
}

TEST_CASE("by ticket ranges follow each other, each in its order") {
  if (!canRun(3)) return;
  forEachRank(3, [](Rank& rank) {
    TileFlags const flags(rank.communicator, {.tiles = 1, .blocks = 1});
    auto expected = numbersOf<OwnOnly<>>(moves(), rank.rank);
    auto const behind = numbersOf<OwnFirst<1>>(products(), rank.rank);
    expected.insert(expected.end(), behind.begin(), behind.end());
    GpuBuffer<unsigned> const noted(rank.device, expected.size());
    rank.meet();
    launch(rank.stream, {.blocks = 1, .threads = 1}, InTurnKernel{}, flags.deviceHandle(), noted.data());
    rank.synchronize();
    CHECK(copyToHost(noted) == expected);
  });
}
