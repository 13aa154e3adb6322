// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Orders of tiles go through every tile once, whatever the shape: proved while this is compiled.
#include "mscclpp/device/tiles/tile_order.hpp"

#include <set>
#include <vector>

#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

// Whether the order's positions are all tiles of the grid, once each, and these all elements, once each.
template <TileOrder O>
constexpr bool isBijective(TileGrid const& grid, int rank) {
  std::uint64_t elements = 0;
  bool seen[128] = {};
  if (grid.count() > 128) return false;
  for (std::uint32_t position = 0; position < O::count(grid); ++position) {
    auto const tile = O::at(grid, rank, position);
    if (tile.number >= grid.count() || seen[tile.number]) return false;
    seen[tile.number] = true;
    if (tile != grid.at(tile.owner, tile.down, tile.across)) return false;
    elements += std::uint64_t{tile.rows} * tile.columns;
  }
  bool const all = O::count(grid) == grid.count();
  return elements == std::uint64_t{all ? grid.rows : grid.rowsOf(rank)} * grid.columns;
}

// Tiles that are beside each other share no element: with the sum above, each element is in one tile.
constexpr bool tilesAreApart(TileGrid const& grid) {
  for (int owner = 0; owner < grid.ranks; ++owner) {
    for (std::uint32_t down = 0; down < grid.down(); ++down) {
      for (std::uint32_t across = 0; across < grid.across(); ++across) {
        auto const tile = grid.at(owner, down, across);
        if (tile.rows > grid.tileRows || tile.columns > grid.tileColumns) return false;
        if (tile.column != across * grid.tileColumns || tile.row - grid.firstRow(owner) != tile.shardRow) return false;
        if (!tile.empty() && tile.shardRow != down * grid.tileRows) return false;
        if (!tile.empty() && tile.row + tile.rows > grid.firstRow(owner + 1)) return false;
      }
    }
  }
  return true;
}

template <template <unsigned> class O>
constexpr bool isBijective(TileGrid const& grid) {
  for (int rank = 0; rank < grid.ranks; ++rank) {
    if (!isBijective<O<1>>(grid, rank) || !isBijective<O<3>>(grid, rank) || !isBijective<O<8>>(grid, rank))
      return false;
  }
  return true;
}

constexpr bool isRight(TileGrid const& grid) {
  return isBijective<OwnFirst>(grid) && isBijective<PeersFirst>(grid) && isBijective<RoundRobinOwner>(grid) &&
         isBijective<OwnOnly>(grid) && tilesAreApart(grid);
}

static_assert(isRight({.rows = 16, .columns = 12, .tileRows = 2, .tileColumns = 4, .ranks = 1}));
static_assert(isRight({.rows = 16, .columns = 12, .tileRows = 2, .tileColumns = 4, .ranks = 4}));
static_assert(isRight({.rows = 40, .columns = 12, .tileRows = 2, .tileColumns = 4, .ranks = 2}));
static_assert(isRight({.rows = 17, .columns = 13, .tileRows = 3, .tileColumns = 5, .ranks = 3}));  // all ends ragged
static_assert(isRight({.rows = 9, .columns = 1, .tileRows = 1, .tileColumns = 1, .ranks = 8}));    // ranks without rows
static_assert(isRight({.rows = 5, .columns = 7, .tileRows = 4, .tileColumns = 8, .ranks = 5}));    // tiles too large
static_assert(isRight({.rows = 1, .columns = 1, .tileRows = 128, .tileColumns = 256, .ranks = 8}));
static_assert(isRight({.rows = 0, .columns = 5, .tileRows = 2, .tileColumns = 2, .ranks = 3}));
static_assert(isRight({.rows = 5, .columns = 0, .tileRows = 2, .tileColumns = 2, .ranks = 3}));
static_assert(isRight({.rows = 4096, .columns = 3000, .tileRows = 256, .tileColumns = 1600, .ranks = 7}));

constexpr TileGrid grid{.rows = 12, .columns = 6, .tileRows = 2, .tileColumns = 3, .ranks = 3};

// Who is first, and who follows.
static_assert(OwnFirst<1>::at(grid, 1, 0).owner == 1 && OwnFirst<1>::at(grid, 1, 4).owner == 2);
static_assert(PeersFirst<1>::at(grid, 1, 0).owner == 2 && PeersFirst<1>::at(grid, 1, 11).owner == 1);
static_assert(RoundRobinOwner<1>::at(grid, 1, 0).owner == 2 && RoundRobinOwner<1>::at(grid, 1, 1).owner == 0 &&
              RoundRobinOwner<1>::at(grid, 1, 2).owner == 1);
// Down a super row, then to the next column.
static_assert(OwnOnly<2>::at(grid, 0, 1).row == 2 && OwnOnly<2>::at(grid, 0, 2).column == 3);
static_assert(OwnOnly<1>::at(grid, 0, 1).row == 0 && OwnOnly<1>::at(grid, 0, 1).column == 3);

// Ranks are at work for different owners at any time.
constexpr bool ownersDiffer() {
  for (std::uint32_t position = 0; position < grid.count(); ++position) {
    if (PeersFirst<>::at(grid, 0, position).owner == PeersFirst<>::at(grid, 1, position).owner) return false;
    if (RoundRobinOwner<>::at(grid, 0, position).owner == RoundRobinOwner<>::at(grid, 2, position).owner) return false;
  }
  return true;
}
static_assert(ownersDiffer());

constexpr std::uint32_t walked(TileGrid const& of, std::uint32_t first, std::uint32_t step) {
  std::uint32_t tiles = 0;
  for (auto const& tile : TileRange<OwnFirst<>>(of, 0, first, step)) tiles += tile.empty() ? 1000 : 1;
  return tiles;
}
static_assert(walked(grid, 0, 1) == 12 && walked(grid, 1, 5) == 3 && walked(grid, 12, 1) == 0);
static_assert(walked(grid, 3, 0xffffffffu) == 1);
static_assert(walked({.rows = 9, .columns = 1, .tileRows = 1, .tileColumns = 1, .ranks = 8}, 0, 1) == 9);

// Each block notes the tiles that are its.
struct WalkKernel {
  MSCCLPP_DEVICE void operator()(unsigned* blockOf, TileGrid const& of, int rank) const {
    for (auto const& tile : tilesOf<PeersFirst<2>>(of, rank, thisGrid())) {
      if (thisBlock().rank() == 0) blockOf[tile.number] += 1 + thisGrid().blockRank();
    }
  }
};

}  // namespace

TEST_CASE("blocks share the tiles") {
  if (!canRun(1)) return;
  TileGrid const of{.rows = 17, .columns = 13, .tileRows = 3, .tileColumns = 5, .ranks = 4};
  for (unsigned const blocks : {1u, 3u, 40u}) {
    forEachRank(1, [&](Rank& rank) {
      GpuBuffer<unsigned> blockOf(rank.device, of.count());
      launch(rank.stream, {.blocks = blocks, .threads = 32}, WalkKernel{}, blockOf.data(), of, 2);
      rank.synchronize();
      auto const found = copyToHost(blockOf);
      for (std::uint32_t position = 0; position < of.count(); ++position) {
        auto const tile = PeersFirst<2>::at(of, 2, position);
        CHECK(found[tile.number] == (tile.empty() ? 0 : 1 + position % blocks));
      }
    });
  }
}
