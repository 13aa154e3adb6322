// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles for whoever is free, in place of a share for each block.
//
//   Tickets tickets(round, thisBlock());
//   for (auto const& tile : tilesOf<OwnOnly<>>(gates, flags.rank, tickets)) ...    the first tickets of the round
//   for (auto const& tile : tilesOf<OwnFirst<>>(tiles, flags.rank, tickets)) ...   those behind them
//
// All groups of the grid that take part, blocks or warps, go through the same ranges in the same order, each to its
// end, one after the other; what is not empty comes to one of them. They take all tickets of the round: nobody else
// asks for one. All threads of a group call, at the same place.
//
// A tile is given out once all before it have been, to groups that run. So where moves come first, and products that
// wait for them behind, each with its arrival, no product waits for a block that has not found room on the device, of
// whatever size the grids are: blocks change roles as work does.
//
// Orders nothing beyond the group's barriers. Cost: an addition in device memory and a broadcast for each tile.
#pragma once

#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/tiles/tile_flags.hpp"
#include "mscclpp/device/tiles/tile_order.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <BlockSet B, SyncGroup G>
class Tickets {
 public:
  MSCCLPP_DEVICE Tickets(TileRound<B> const& round, G const& group) : round_(round), group_(group) { take(); }
  Tickets(Tickets const&) = delete;
  Tickets& operator=(Tickets const&) = delete;

  // The ticket in hand.
  MSCCLPP_DEVICE unsigned number() const { return number_; }
  MSCCLPP_DEVICE void take() { number_ = round_.ticket(group_); }

  // The first of so many tickets, which no other range has.
  MSCCLPP_DEVICE unsigned reserve(unsigned count) {
    auto const first = reserved_;
    reserved_ += count;
    return first;
  }

 private:
  TileRound<B> const& round_;
  G group_;
  unsigned number_ = 0;
  unsigned reserved_ = 0;
};

// The tiles that are not empty at the positions whose tickets come to this group.
template <TileOrder O, class T>
class TicketRange {
 public:
  // Reached where the group's ticket is past the range's.
  struct End {};

  // ++ takes a ticket, with the whole group: a range is gone through once.
  class Iterator {
   public:
    MSCCLPP_DEVICE explicit Iterator(TicketRange& range) : range_(range) { find(); }
    MSCCLPP_DEVICE TileAt const& operator*() const { return tile_; }
    MSCCLPP_DEVICE Iterator& operator++() {
      range_.tickets_.take();
      find();
      return *this;
    }
    MSCCLPP_DEVICE bool operator!=(End) const { return range_.holds(); }

   private:
    MSCCLPP_DEVICE void find() {
      for (; range_.holds(); range_.tickets_.take()) {
        tile_ = O::at(range_.grid_, range_.rank_, range_.position());
        if (!tile_.empty()) return;
      }
    }

    TicketRange& range_;
    TileAt tile_{};
  };

  MSCCLPP_DEVICE TicketRange(TileGrid const& grid, int rank, T& tickets)
      : grid_(grid), rank_(rank), tickets_(tickets), first_(tickets.reserve(O::count(grid))) {}

  MSCCLPP_DEVICE Iterator begin() { return Iterator(*this); }
  MSCCLPP_DEVICE End end() const { return {}; }

 private:
  MSCCLPP_DEVICE unsigned position() const { return tickets_.number() - first_; }
  MSCCLPP_DEVICE bool holds() const { return position() < O::count(grid_); }

  TileGrid grid_;
  int rank_;
  T& tickets_;
  unsigned first_;
};

template <TileOrder O, BlockSet B, SyncGroup G>
MSCCLPP_DEVICE TicketRange<O, Tickets<B, G>> tilesOf(TileGrid const& grid, int rank, Tickets<B, G>& tickets) {
  return {grid, rank, tickets};
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
