// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who this thread is and how it meets others, on an NVIDIA GPU. Twin of arch/sim/thread.hpp.
//
// Grids and blocks are one-dimensional. Barriers order memory among the threads they join; shuffles and votes do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/config.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

inline constexpr unsigned warpSize = 32;

MSCCLPP_DEVICE unsigned threadIndex() { return threadIdx.x; }
MSCCLPP_DEVICE unsigned blockIndex() { return blockIdx.x; }
MSCCLPP_DEVICE unsigned blockThreads() { return blockDim.x; }
MSCCLPP_DEVICE unsigned gridBlocks() { return gridDim.x; }

// Registers of which each is written before it is read, if it is read at all.
template <class T, unsigned Count>
MSCCLPP_DEVICE void leaveUnset(T (&)[Count]) {}

MSCCLPP_DEVICE void syncBlock() { __syncthreads(); }
// How many threads came: fewer than the block has once some have left the kernel.
MSCCLPP_DEVICE unsigned syncBlockCount() { return static_cast<unsigned>(__syncthreads_count(1)); }
MSCCLPP_DEVICE void syncWarp(unsigned mask = 0xffffffffu) { __syncwarp(mask); }

// Blocks of this block's cluster, and its place among them. Where there are no clusters, each block is one.
MSCCLPP_DEVICE unsigned clusterBlocks() {
#if __CUDA_ARCH__ >= 900
  unsigned count;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(count));
  return count;
#else
  return 1;
#endif
}
MSCCLPP_DEVICE unsigned clusterRank() {
#if __CUDA_ARCH__ >= 900
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
  return rank;
#else
  return 0;
#endif
}
MSCCLPP_DEVICE void syncCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#else
  __syncthreads();
#endif
}

// The cluster's blocks meet in two parts, with other work between them. Behind the second, barriers that any of them
// has made ahead of the first are there (BulkBarrier::init()), and nothing else need be: an arrival that orders memory
// waits for all packets on their way to other GPUs. Every thread that arrives awaits before it arrives again, or
// leaves.
MSCCLPP_DEVICE void arriveAtCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;\n\tbarrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
MSCCLPP_DEVICE void awaitCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#else
  __syncthreads();
#endif
}

// Barrier number `id` (1 to 15) of this block, joined by `threads` threads, a multiple of 32.
MSCCLPP_DEVICE void syncBarrier(unsigned id, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// How many threads came, as syncBlockCount().
MSCCLPP_DEVICE unsigned syncBarrierCount(unsigned id, unsigned threads) {
  unsigned count;
  asm volatile(
      "{\n\t"
      ".reg .pred here;\n\t"
      "setp.eq.u32 here, 0, 0;\n\t"
      "bar.red.popc.u32 %0, %1, %2, here;\n\t"
      "}"
      : "=r"(count)
      : "r"(id), "r"(threads)
      : "memory");
  return count;
}

template <class T>
MSCCLPP_DEVICE T shuffle(T value, unsigned lane, unsigned mask = 0xffffffffu) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0 && sizeof(T) <= 16);
  std::uint32_t words[sizeof(T) / 4];
  __builtin_memcpy(words, &value, sizeof(T));
  for (auto& w : words) w = __shfl_sync(mask, w, static_cast<int>(lane));
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}

template <class T>
MSCCLPP_DEVICE T shuffleXor(T value, unsigned laneMask, unsigned mask = 0xffffffffu) {
  return shuffle(value, (threadIdx.x ^ laneMask) % warpSize, mask);
}

// Lanes past the end of the warp keep their own value.
template <class T>
MSCCLPP_DEVICE T shuffleDown(T value, unsigned delta, unsigned mask = 0xffffffffu) {
  unsigned const from = threadIdx.x % warpSize + delta;
  return shuffle(value, from < warpSize ? from : threadIdx.x % warpSize, mask);
}

MSCCLPP_DEVICE bool warpAny(bool predicate, unsigned mask = 0xffffffffu) { return __any_sync(mask, predicate); }
// A barrier of the warp, and how many threads came.
MSCCLPP_DEVICE unsigned syncWarpCount() {
  auto const here = __ballot_sync(0xffffffffu, true);
  __syncwarp();
  return static_cast<unsigned>(__popc(here));
}
MSCCLPP_DEVICE bool warpAll(bool predicate, unsigned mask = 0xffffffffu) { return __all_sync(mask, predicate); }
MSCCLPP_DEVICE unsigned ballot(bool predicate, unsigned mask = 0xffffffffu) { return __ballot_sync(mask, predicate); }

// One object per block for each pair (T, Tag), not initialised.
template <class T, class Tag>
MSCCLPP_DEVICE T& blockShared() {
  static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>);
  __shared__ alignas(T) unsigned char storage[sizeof(T)];
  return *reinterpret_cast<T*>(storage);
}

// Where block `rank` of this cluster has what blockShared() gives this block; to be read behind a barrier of the
// cluster, and while that block runs.
template <class T>
MSCCLPP_DEVICE T* ofClusterBlock(T& shared, unsigned rank) {
#if __CUDA_ARCH__ >= 900
  std::uint64_t address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(&shared), "r"(rank));
  return reinterpret_cast<T*>(address);
#else
  return &shared;
#endif
}

MSCCLPP_DEVICE std::byte* dynamicShared() {
  extern __shared__ __align__(128) unsigned char mscclppDynamicShared[];
  return reinterpret_cast<std::byte*>(mscclppDynamicShared);
}

// Blocks until the kernel ahead in the stream has ended and its writes are visible; no effect unless this kernel was
// launched with `overlapPrevious`. Before it, nothing that kernel touches may be read or written.
MSCCLPP_DEVICE void waitForPreviousKernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream begin once every block has called this or ended.
MSCCLPP_DEVICE void allowNextKernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// `value`, which nvcc then takes for one that differs between threads. What it knows to be the same for a warp it may
// move to a register of the warp, and waits for a load at once to do so.
MSCCLPP_DEVICE unsigned perThread(unsigned value) { return threadIdx.x < blockDim.x ? value : value + 1; }

// This thread leaves the kernel; barriers and warps no longer count it. The context stays usable. The compiler cannot
// tell that a thread is always active, so it does not know that this never returns (base/config.hpp).
MSCCLPP_DEVICE void exitKernel() {
  asm volatile(
      "{\n\t"
      ".reg .pred active;\n\t"
      ".reg .b32 mask;\n\t"
      "activemask.b32 mask;\n\t"
      "setp.ne.b32 active, mask, 0;\n\t"
      "@active exit;\n\t"
      "}" ::
          : "memory");
}

// The kernel fails: the host sees a device error. The text reaches the host on the simulated machine only.
[[noreturn]] MSCCLPP_DEVICE void trap(char const*) {
  __trap();
  __builtin_unreachable();
}

MSCCLPP_DEVICE std::uint64_t nanoseconds() {
  std::uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
