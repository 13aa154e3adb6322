// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets kernels in CUDA notation compile for the simulated machine. Opt-in: it defines global names and macros, so a
// file that only needs the library's own notation should not include it. Under nvcc it is empty.
//
// Covered: threadIdx blockIdx blockDim gridDim (one-dimensional), __syncthreads __syncwarp, shuffles and votes,
// __threadfence and __threadfence_system, atomicAdd, function markers, cudaStream_t. Not covered: __shared__ variables
// (use arch::blockShared), dimensions y and z other than 0 and 1, textures, libdevice.
#pragma once

#if !defined(__CUDACC__)

#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/thread.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace mscclpp::sim {

// Reads as an unsigned, like the members of CUDA's built-in variables.
template <unsigned (*Read)()>
struct CudaIndex {
  operator unsigned() const { return Read(); }
};

// `x` is read anew at each use; `y` and `z` are what they are in one dimension.
template <unsigned (*Read)(), unsigned Other>
struct CudaIndices {
  CudaIndex<Read> x{};
  unsigned y = Other;
  unsigned z = Other;
};

}  // namespace mscclpp::sim

inline constexpr mscclpp::sim::CudaIndices<&mscclpp::arch::threadIndex, 0> threadIdx{};
inline constexpr mscclpp::sim::CudaIndices<&mscclpp::arch::blockIndex, 0> blockIdx{};
inline constexpr mscclpp::sim::CudaIndices<&mscclpp::arch::blockThreads, 1> blockDim{};
inline constexpr mscclpp::sim::CudaIndices<&mscclpp::arch::gridBlocks, 1> gridDim{};
inline constexpr int warpSize = 32;
using cudaStream_t = void*;

inline void __syncthreads() { mscclpp::arch::syncBlock(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { mscclpp::arch::syncWarp(mask); }

// Of all 32 lanes: there is no `width`. The lanes of `mask` call; __shfl_down_sync leaves those at the end their own
// value.
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return mscclpp::arch::shuffle(value, static_cast<unsigned>(lane), mask);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int laneMask) {
  return mscclpp::arch::shuffleXor(value, static_cast<unsigned>(laneMask), mask);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta) {
  return mscclpp::arch::shuffleDown(value, delta, mask);
}
inline int __any_sync(unsigned mask, int predicate) { return mscclpp::arch::warpAny(predicate != 0, mask); }
inline int __all_sync(unsigned mask, int predicate) { return mscclpp::arch::warpAll(predicate != 0, mask); }
inline unsigned __ballot_sync(unsigned mask, int predicate) { return mscclpp::arch::ballot(predicate != 0, mask); }

inline void __threadfence() { mscclpp::fence<mscclpp::Order::sequential, mscclpp::Scope::device>(); }
inline void __threadfence_system() { mscclpp::fence<mscclpp::Order::sequential, mscclpp::Scope::system>(); }

template <class T>
T atomicAdd(T* address, T value) {
  return mscclpp::fetchAdd<mscclpp::Order::relaxed, mscclpp::Scope::device>(address, value);
}

#endif
