// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tiles of a matrix whose rows are dealt out to ranks, and the orders in which a rank goes through them.
//
//   TileGrid grid{.rows = m, .columns = n, .tileRows = 128, .tileColumns = 256, .ranks = team.size};
//   for (auto const tile : tilesOf<PeersFirst<>>(grid, team.rank, thisGrid())) ...    // each block its share
//
//   OwnFirst<S>          own rows, then those of rank + 1, + 2, ...: work that waits for what peers send begins with
//                        what is here
//   PeersFirst<S>        the same with the own rows last: results for peers are on their way while the rest is made
//   RoundRobinOwner<S>   each tile is another rank's than the one before it: owners get an equal share at any time
//   OwnOnly<S>           own rows alone
// At every moment ranks work for different owners, so no link carries more than the others. Within the rows of an
// owner, tiles go down S tile rows and then to the next column, so that blocks at work at once share what they read of
// both factors in the second-level cache.
//
// All of it is constexpr; at() costs some divisions. An order is a bijection from positions 0 ... count() - 1 to tiles,
// of which those past a ragged end are empty; ranges leave these out.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/group.hpp"

namespace mscclpp {

// A tile of a TileGrid: whose it is, and where it lies.
struct TileAt {
  std::uint32_t number;         // in the whole matrix: that of its flag
  int owner;                    // the rank that has these rows
  std::uint32_t down, across;   // its place among the owner's tiles
  std::uint32_t row, column;    // of its first element in the whole matrix
  std::uint32_t shardRow;       // the row among the owner's
  std::uint32_t rows, columns;  // fewer than others at ragged ends

  MSCCLPP_HOST_DEVICE constexpr bool empty() const { return rows == 0; }
  friend constexpr bool operator==(TileAt const&, TileAt const&) = default;
};

// Each rank has a shard of ceil(rows / ranks) rows, the last ones fewer or none; each shard is cut into tiles from its
// first row on. Sizes are at least 1, but for rows and columns.
struct TileGrid {
  std::uint32_t rows;
  std::uint32_t columns;
  std::uint32_t tileRows;
  std::uint32_t tileColumns;
  int ranks;

  // Rows of a shard that is full, the first row of the owner's in the whole matrix, and how many rows it has.
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t shardRows() const {
    return ceilDiv(rows, static_cast<std::uint32_t>(ranks));
  }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t firstRow(int owner) const {
    return minimum(static_cast<std::uint32_t>(owner) * shardRows(), rows);
  }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t rowsOf(int owner) const { return firstRow(owner + 1) - firstRow(owner); }

  // Tiles of a shard, empty ones included, and of all.
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t down() const { return ceilDiv(shardRows(), tileRows); }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t across() const { return ceilDiv(columns, tileColumns); }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t perShard() const { return down() * across(); }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t count() const { return perShard() * static_cast<std::uint32_t>(ranks); }

  MSCCLPP_HOST_DEVICE constexpr TileAt at(int owner, std::uint32_t downAt, std::uint32_t acrossAt) const {
    auto const shardRow = minimum(downAt * tileRows, rowsOf(owner));
    auto const column = acrossAt * tileColumns;
    return {.number = static_cast<std::uint32_t>(owner) * perShard() + downAt * across() + acrossAt,
            .owner = owner,
            .down = downAt,
            .across = acrossAt,
            .row = firstRow(owner) + shardRow,
            .column = column,
            .shardRow = shardRow,
            .rows = minimum(tileRows, rowsOf(owner) - shardRow),
            .columns = minimum(tileColumns, columns - column)};
  }
};

// `at` is asked for positions below `count` alone.
template <class O>
concept TileOrder = requires(TileGrid const& grid, int rank, std::uint32_t position) {
  { O::count(grid) } -> std::same_as<std::uint32_t>;
  { O::at(grid, rank, position) } -> std::same_as<TileAt>;
};

namespace detail {

template <unsigned SuperRows>
MSCCLPP_HOST_DEVICE constexpr TileAt tileInShard(TileGrid const& grid, int owner, std::uint32_t position) {
  static_assert(SuperRows != 0, "a super row has at least one row of tiles");
  auto const first = position / (SuperRows * grid.across()) * SuperRows;
  auto const within = position - first * grid.across();
  auto const height = minimum(SuperRows, grid.down() - first);  // the last super row may be lower
  return grid.at(owner, first + within % height, within / height);
}

MSCCLPP_HOST_DEVICE constexpr int rankBehind(TileGrid const& grid, int rank, std::uint32_t distance) {
  return static_cast<int>((static_cast<std::uint32_t>(rank) + distance) % static_cast<std::uint32_t>(grid.ranks));
}

}  // namespace detail

template <unsigned SuperRows = 8>
struct OwnFirst {
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t count(TileGrid const& grid) { return grid.count(); }
  MSCCLPP_HOST_DEVICE static constexpr TileAt at(TileGrid const& grid, int rank, std::uint32_t position) {
    auto const shard = position / grid.perShard();
    return detail::tileInShard<SuperRows>(grid, detail::rankBehind(grid, rank, shard), position % grid.perShard());
  }
};

template <unsigned SuperRows = 8>
struct PeersFirst {
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t count(TileGrid const& grid) { return grid.count(); }
  MSCCLPP_HOST_DEVICE static constexpr TileAt at(TileGrid const& grid, int rank, std::uint32_t position) {
    auto const shard = position / grid.perShard() + 1;
    return detail::tileInShard<SuperRows>(grid, detail::rankBehind(grid, rank, shard), position % grid.perShard());
  }
};

template <unsigned SuperRows = 8>
struct RoundRobinOwner {
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t count(TileGrid const& grid) { return grid.count(); }
  MSCCLPP_HOST_DEVICE static constexpr TileAt at(TileGrid const& grid, int rank, std::uint32_t position) {
    auto const ranks = static_cast<std::uint32_t>(grid.ranks);
    return detail::tileInShard<SuperRows>(grid, detail::rankBehind(grid, rank, position % ranks + 1), position / ranks);
  }
};

template <unsigned SuperRows = 8>
struct OwnOnly {
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t count(TileGrid const& grid) { return grid.perShard(); }
  MSCCLPP_HOST_DEVICE static constexpr TileAt at(TileGrid const& grid, int rank, std::uint32_t position) {
    return detail::tileInShard<SuperRows>(grid, rank, position);
  }
};

static_assert(TileOrder<OwnFirst<>> && TileOrder<PeersFirst<>> && TileOrder<RoundRobinOwner<>> && TileOrder<OwnOnly<>>);

// The tiles that are not empty at positions first, first + step, ... of an order.
template <TileOrder O>
class TileRange {
 public:
  // Passes over empty tiles.
  class Iterator {
   public:
    MSCCLPP_HOST_DEVICE constexpr Iterator(TileRange const& range, std::uint32_t position)
        : range_(range), position_(position) {
      find();
    }
    MSCCLPP_HOST_DEVICE constexpr TileAt const& operator*() const { return tile_; }
    MSCCLPP_HOST_DEVICE constexpr Iterator& operator++() {
      next();
      find();
      return *this;
    }
    MSCCLPP_HOST_DEVICE constexpr bool operator!=(Iterator const& other) const { return position_ != other.position_; }

   private:
    // Not past the end, which may be the largest number that there is.
    MSCCLPP_HOST_DEVICE constexpr void next() {
      position_ = range_.step_ < range_.count_ - position_ ? position_ + range_.step_ : range_.count_;
    }
    MSCCLPP_HOST_DEVICE constexpr void find() {
      while (position_ < range_.count_) {
        tile_ = O::at(range_.grid_, range_.rank_, position_);
        if (!tile_.empty()) return;
        next();
      }
    }

    TileRange const& range_;
    std::uint32_t position_;
    TileAt tile_{};
  };

  MSCCLPP_HOST_DEVICE constexpr TileRange(TileGrid const& grid, int rank, std::uint32_t first, std::uint32_t step)
      : grid_(grid), rank_(rank), first_(minimum(first, O::count(grid))), step_(step), count_(O::count(grid)) {}

  MSCCLPP_HOST_DEVICE constexpr Iterator begin() const { return {*this, first_}; }
  MSCCLPP_HOST_DEVICE constexpr Iterator end() const { return {*this, count_}; }

 private:
  TileGrid grid_;
  int rank_;
  std::uint32_t first_;
  std::uint32_t step_;
  std::uint32_t count_;
};

inline namespace MSCCLPP_BACKEND {

// Each of the blocks its share: every blockCount()th.
template <TileOrder O, BlockSet B>
MSCCLPP_DEVICE TileRange<O> tilesOf(TileGrid const& grid, int rank, B const& blocks) {
  return {grid, rank, blocks.blockRank(), blocks.blockCount()};
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
