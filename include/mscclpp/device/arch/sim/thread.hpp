// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who this thread is and how it meets others, on the simulated machine. Twin of arch/cuda/thread.hpp.
//
// Grids and blocks are one-dimensional. Every thread is a fiber of its own, so the lanes of a warp really exchange
// values and a barrier that misses a thread really blocks; the scheduler reports it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/config.hpp"
#include "mscclpp/sim/backend/device_calls.hpp"
#include "mscclpp/sim/backend/poll.hpp"
#include "mscclpp/sim/backend/thread_context.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

inline constexpr unsigned warpSize = 32;

MSCCLPP_DEVICE unsigned threadIndex() { return sim::currentThread().thread; }
MSCCLPP_DEVICE unsigned blockIndex() { return sim::currentThread().block; }
MSCCLPP_DEVICE unsigned blockThreads() { return sim::currentThread().threads; }
MSCCLPP_DEVICE unsigned gridBlocks() { return sim::currentThread().blocks; }

// Registers of which each is written before it is read, if it is read at all. All bits are set here: one that is read
// without shows in results, as a NaN or -1, and compilers, which do not see through the loops that write them, do not
// warn of what is never read.
template <class T, unsigned Count>
MSCCLPP_DEVICE void leaveUnset(T (&values)[Count]) {
  __builtin_memset(static_cast<void*>(values), 0xff, sizeof values);
}

MSCCLPP_DEVICE void syncBlock() { sim::syncBlock(); }
// How many threads came: fewer than the block has once some have left the kernel.
MSCCLPP_DEVICE unsigned syncBlockCount() { return sim::syncBlock(); }
MSCCLPP_DEVICE void syncWarp(unsigned mask = 0xffffffffu) { sim::syncWarp(mask); }

// Blocks of this block's cluster, and its place among them.
MSCCLPP_DEVICE unsigned clusterBlocks() { return sim::currentThread().clusterBlocks; }
MSCCLPP_DEVICE unsigned clusterRank() { return sim::currentThread().block % sim::currentThread().clusterBlocks; }
MSCCLPP_DEVICE void syncCluster() { sim::syncCluster(); }
// The cluster's blocks meet in two parts, with other work between them. Behind the second, barriers that any of them
// has made ahead of the first are there (BulkBarrier::init()), and nothing else need be. Every thread that arrives
// awaits before it arrives again, or leaves.
MSCCLPP_DEVICE void arriveAtCluster() { sim::arriveAtCluster(); }
MSCCLPP_DEVICE void awaitCluster() { sim::awaitCluster(); }

// Barrier number `id` (1 to 15) of this block, joined by `threads` threads, a multiple of 32.
MSCCLPP_DEVICE void syncBarrier(unsigned id, unsigned threads) { sim::syncBarrier(id, threads); }
// How many threads came, as syncBlockCount().
MSCCLPP_DEVICE unsigned syncBarrierCount(unsigned id, unsigned threads) { return sim::syncBarrier(id, threads); }

template <class T>
MSCCLPP_DEVICE T shuffle(T value, unsigned lane, unsigned mask = 0xffffffffu) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0 && sizeof(T) <= 16);
  T result = value;
  sim::shuffle(&value, &result, sizeof(T), lane % warpSize, mask);
  return result;
}

template <class T>
MSCCLPP_DEVICE T shuffleXor(T value, unsigned laneMask, unsigned mask = 0xffffffffu) {
  return shuffle(value, (threadIndex() ^ laneMask) % warpSize, mask);
}

// Lanes past the end of the warp keep their own value.
template <class T>
MSCCLPP_DEVICE T shuffleDown(T value, unsigned delta, unsigned mask = 0xffffffffu) {
  unsigned const own = threadIndex() % warpSize;
  unsigned const from = own + delta;
  return shuffle(value, from < warpSize ? from : own, mask);
}

MSCCLPP_DEVICE unsigned ballot(bool predicate, unsigned mask = 0xffffffffu) { return sim::ballot(predicate, mask); }
// A barrier of the warp, and how many threads came.
MSCCLPP_DEVICE unsigned syncWarpCount() {
  auto const here = ballot(true);
  syncWarp();
  return static_cast<unsigned>(std::popcount(here));
}
MSCCLPP_DEVICE bool warpAny(bool predicate, unsigned mask = 0xffffffffu) { return ballot(predicate, mask) != 0; }
MSCCLPP_DEVICE bool warpAll(bool predicate, unsigned mask = 0xffffffffu) { return ballot(!predicate, mask) == 0; }

// One object per block for each pair (T, Tag), not initialised.
template <class T, class Tag>
MSCCLPP_DEVICE T& blockShared() {
  static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>);
  static char key;
  return *static_cast<T*>(sim::blockShared(&key, sizeof(T), alignof(T)));
}

// Where block `rank` of this cluster has what blockShared() gives this block; to be read behind a barrier of the
// cluster, and while that block runs.
template <class T>
MSCCLPP_DEVICE T* ofClusterBlock(T& shared, unsigned rank) {
  return static_cast<T*>(sim::sharedOfCluster(&shared, rank));
}

MSCCLPP_DEVICE std::byte* dynamicShared() { return sim::dynamicShared(); }

// Blocks until the kernel ahead in the stream has ended; no effect unless this kernel was launched with
// `overlapPrevious`. Before it, nothing that kernel touches may be read or written.
MSCCLPP_DEVICE void waitForPreviousKernel() { sim::waitForPreviousKernel(); }

// Lets the next kernel of the stream begin once every block has called this or ended.
MSCCLPP_DEVICE void allowNextKernel() { sim::allowNextKernel(); }

// `value`: only nvcc needs to be told more (arch/cuda/thread.hpp).
MSCCLPP_DEVICE unsigned perThread(unsigned value) { return value; }

// This thread leaves the kernel; barriers and warps no longer count it.
[[noreturn]] MSCCLPP_DEVICE void exitKernel() { sim::exitKernel(); }

// The kernel fails: synchronize() throws deviceError with the text.
[[noreturn]] MSCCLPP_DEVICE void trap(char const* why) { sim::trap(why); }

MSCCLPP_DEVICE std::uint64_t nanoseconds() { return sim::nanoseconds(); }

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
