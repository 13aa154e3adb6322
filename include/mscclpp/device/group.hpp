// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups: the threads that act together, passed as a value. A device function that takes a group splits its work by
// `rank()` and `size()` and meets at `sync()`, and so is at once its thread, warp, block and grid form.
//
//   thisThread() thisWarp() thisBlock()     the usual scopes
//   warpsOfBlock(first, count, id)          some warps of the block, meeting at named barrier `id`
//   thisCluster()                           the blocks of a cluster, which meet by hardware: LaunchShape::clusterBlocks
//   thisGrid() blocksOfGrid(first, count)   all or some blocks; no sync() of their own, see gridBarrier()
//   threadRange(rank, size)                 for code that already has a thread number and a count; no sync()
//
// Indices are `unsigned`, as the hardware's: with another type the loops of copies compile to more instructions.
// `sync()` orders memory among the group's threads. So does `syncCount()`, which tells how many of them came.
#pragma once

#include <concepts>

#include "mscclpp/base/config.hpp"
#include "mscclpp/device/thread.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Threads that share work: rank() counts from 0 to size() - 1. They may have no way to meet.
template <class G>
concept Group = requires(G const& g) {
  { g.rank() } -> std::same_as<unsigned>;
  { g.size() } -> std::same_as<unsigned>;
};

// Threads that also meet: all of them call sync() or syncCount().
template <class G>
concept SyncGroup = Group<G> && requires(G const& g) {
  g.sync();
  { g.syncCount() } -> std::same_as<unsigned>;
};

// One or more blocks (or block-like groups) that share the work of a collective.
template <class G>
concept BlockSet = Group<G> && requires(G const& g) {
  { g.blockRank() } -> std::same_as<unsigned>;
  { g.blockCount() } -> std::same_as<unsigned>;
  { g.block() } -> SyncGroup;
};

// A barrier that nobody passes once a thread of the group has left the kernel, because it gave up a wait or found its
// rounds astray: what it was to wait for or to write is not there. Between a wait or a write of some threads and what
// others, or peers, make of it.
template <SyncGroup G>
MSCCLPP_DEVICE void syncWhole(G const& group) {
  if (group.syncCount() != group.size()) [[unlikely]]
    arch::exitKernel();
}

// This thread alone, which waits for nobody.
class ThreadGroup {
 public:
  MSCCLPP_DEVICE unsigned rank() const { return 0; }
  MSCCLPP_DEVICE unsigned size() const { return 1; }
  MSCCLPP_DEVICE void sync() const {}
  MSCCLPP_DEVICE unsigned syncCount() const { return 1; }
};

// Thread `rank` of `size`, as the caller numbers them.
class ThreadRange {
 public:
  MSCCLPP_DEVICE ThreadRange(unsigned rank, unsigned size) : rank_(rank), size_(size) {}
  MSCCLPP_DEVICE unsigned rank() const { return rank_; }
  MSCCLPP_DEVICE unsigned size() const { return size_; }

 private:
  unsigned rank_;
  unsigned size_;
};

// The 32 lanes of this thread's warp. Of an incomplete warp, too, size() is 32.
class WarpGroup {
 public:
  MSCCLPP_DEVICE unsigned rank() const { return arch::threadIndex() % arch::warpSize; }
  MSCCLPP_DEVICE unsigned size() const { return arch::warpSize; }
  MSCCLPP_DEVICE void sync() const { arch::syncWarp(); }
  MSCCLPP_DEVICE unsigned syncCount() const { return arch::syncWarpCount(); }
};

// All threads of this block, which is a BlockSet by itself.
class BlockGroup {
 public:
  MSCCLPP_DEVICE unsigned rank() const { return arch::threadIndex(); }
  MSCCLPP_DEVICE unsigned size() const { return arch::blockThreads(); }
  MSCCLPP_DEVICE void sync() const { arch::syncBlock(); }
  MSCCLPP_DEVICE unsigned syncCount() const { return arch::syncBlockCount(); }
  // The first and only block of the set.
  MSCCLPP_DEVICE unsigned blockRank() const { return 0; }
  MSCCLPP_DEVICE unsigned blockCount() const { return 1; }
  MSCCLPP_DEVICE BlockGroup block() const { return *this; }
};

// `count` warps of this block from warp `first` on; only their threads may call its functions.
class WarpsOfBlock {
 public:
  MSCCLPP_DEVICE WarpsOfBlock(unsigned first, unsigned count, unsigned barrier)
      : first_(first), count_(count), barrier_(barrier) {}
  MSCCLPP_DEVICE unsigned rank() const { return arch::threadIndex() - first_ * arch::warpSize; }
  MSCCLPP_DEVICE unsigned size() const { return count_ * arch::warpSize; }
  MSCCLPP_DEVICE void sync() const { arch::syncBarrier(barrier_, size()); }
  MSCCLPP_DEVICE unsigned syncCount() const { return arch::syncBarrierCount(barrier_, size()); }
  // The warps count as one block, block() is these.
  MSCCLPP_DEVICE unsigned blockRank() const { return 0; }
  MSCCLPP_DEVICE unsigned blockCount() const { return 1; }
  MSCCLPP_DEVICE WarpsOfBlock block() const { return *this; }

 private:
  unsigned first_;
  unsigned count_;
  unsigned barrier_;
};

// `count` blocks of the grid from block `first` on; only their threads may call its functions.
class BlocksOfGrid {
 public:
  MSCCLPP_DEVICE BlocksOfGrid(unsigned first, unsigned count) : first_(first), count_(count) {}
  MSCCLPP_DEVICE unsigned rank() const { return blockRank() * arch::blockThreads() + arch::threadIndex(); }
  MSCCLPP_DEVICE unsigned size() const { return count_ * arch::blockThreads(); }
  // Counts from block `first` of the grid.
  MSCCLPP_DEVICE unsigned blockRank() const { return arch::blockIndex() - first_; }
  MSCCLPP_DEVICE unsigned blockCount() const { return count_; }
  MSCCLPP_DEVICE BlockGroup block() const { return {}; }

 private:
  unsigned first_;
  unsigned count_;
};

// With the same launch everywhere: a grid of one cluster has the same blocks as thisGrid().
class ClusterGroup {
 public:
  MSCCLPP_DEVICE unsigned rank() const { return blockRank() * arch::blockThreads() + arch::threadIndex(); }
  MSCCLPP_DEVICE unsigned size() const { return blockCount() * arch::blockThreads(); }
  MSCCLPP_DEVICE void sync() const { arch::syncCluster(); }
  // The hardware does not count them.
  MSCCLPP_DEVICE unsigned syncCount() const {
    sync();
    return size();
  }
  MSCCLPP_DEVICE unsigned blockRank() const { return arch::clusterRank(); }
  MSCCLPP_DEVICE unsigned blockCount() const { return arch::clusterBlocks(); }
  MSCCLPP_DEVICE BlockGroup block() const { return {}; }
};

// All threads of the kernel.
class GridGroup {
 public:
  MSCCLPP_DEVICE unsigned rank() const { return arch::blockIndex() * arch::blockThreads() + arch::threadIndex(); }
  MSCCLPP_DEVICE unsigned size() const { return arch::gridBlocks() * arch::blockThreads(); }
  // As blockIdx.x and gridDim.x.
  MSCCLPP_DEVICE unsigned blockRank() const { return arch::blockIndex(); }
  MSCCLPP_DEVICE unsigned blockCount() const { return arch::gridBlocks(); }
  MSCCLPP_DEVICE BlockGroup block() const { return {}; }
};

MSCCLPP_DEVICE ThreadGroup thisThread() { return {}; }
MSCCLPP_DEVICE WarpGroup thisWarp() { return {}; }
MSCCLPP_DEVICE BlockGroup thisBlock() { return {}; }
MSCCLPP_DEVICE ClusterGroup thisCluster() { return {}; }
MSCCLPP_DEVICE GridGroup thisGrid() { return {}; }
MSCCLPP_DEVICE WarpsOfBlock warpsOfBlock(unsigned first, unsigned count, unsigned barrier) {
  return {first, count, barrier};
}
MSCCLPP_DEVICE BlocksOfGrid blocksOfGrid(unsigned first, unsigned count) { return {first, count}; }
MSCCLPP_DEVICE ThreadRange threadRange(unsigned rank, unsigned size) { return {rank, size}; }

static_assert(SyncGroup<ThreadGroup> && SyncGroup<WarpGroup> && SyncGroup<BlockGroup> && Group<ThreadRange>);
static_assert(BlockSet<BlockGroup> && BlockSet<WarpsOfBlock> && BlockSet<BlocksOfGrid> && BlockSet<GridGroup>);
static_assert(BlockSet<ClusterGroup> && SyncGroup<ClusterGroup>);

using arch::allowNextKernel;
using arch::waitForPreviousKernel;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
