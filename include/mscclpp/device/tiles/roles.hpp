// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two roles in one kernel: some blocks move data while the others work on what has come, or some warps of a block load
// what the others use.
//
//   Roles{movers}.split(thisGrid(), move, multiply)       the first `movers` blocks move, the others multiply
//   Roles{1}.split(thisBlock(), load, use)                the first warp loads, the others use
//
// All threads of the grid or block call. Each role is a function of those who have it, whose numbers begin at zero:
// blocksOfGrid(...), or warpsOfBlock(...) with named barrier 1 for the first role and 2 for the other. Blocks that
// others wait for come first, as they are the first to find room on the device.
//
// Where the grid or block has no more than `first`, its blocks or warps have both roles, one after the other: no grid
// is too small, as long as the first role does not wait for the other. With Roles{0} nobody has the first.
//
// Orders nothing, and costs a comparison. Work for whoever is free: tickets.hpp.
#pragma once

#include "mscclpp/device/group.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

class Roles {
 public:
  MSCCLPP_HOST_DEVICE constexpr explicit Roles(unsigned first) : first_(first) {}

  template <class First, class Others>
  MSCCLPP_DEVICE void split(GridGroup const& grid, First const& first, Others const& others) const {
    deal(grid.blockRank(), grid.blockCount(), first, others,
         [](unsigned from, unsigned count, unsigned) { return blocksOfGrid(from, count); });
  }

  // Of a block of whole warps.
  template <class First, class Others>
  MSCCLPP_DEVICE void split(BlockGroup const& block, First const& first, Others const& others) const {
    deal(block.rank() / arch::warpSize, block.size() / arch::warpSize, first, others,
         [](unsigned from, unsigned count, unsigned barrier) { return warpsOfBlock(from, count, barrier); });
  }

 private:
  template <class First, class Others, class Part>
  MSCCLPP_DEVICE void deal(unsigned rank, unsigned count, First const& first, Others const& others,
                           Part const& part) const {
    bool const both = count <= first_;
    if (both || rank < first_) first(part(0, both ? count : first_, 1));
    if (both || rank >= first_) others(both ? part(0, count, 2) : part(first_, count - first_, 2));
  }

  unsigned first_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
