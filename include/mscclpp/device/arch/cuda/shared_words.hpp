// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Words of block-shared memory that other blocks of a cluster write, and when they may, on an NVIDIA GPU. Twin of
// arch/sim/shared_words.hpp.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

// Relaxed, whole, between the blocks of a cluster. Stores: in blockShared() of this block, or as ofClusterBlock() says;
// loads: of this block's.
MSCCLPP_DEVICE void storeSharedWord(std::uint64_t* address, std::uint64_t value) {
  asm volatile("st.relaxed.gpu.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
MSCCLPP_DEVICE std::uint64_t loadSharedWord(std::uint64_t const* address) {
  std::uint64_t value;
  asm volatile("ld.relaxed.gpu.shared.b64 %0, [%1];"
               : "=l"(value)
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(address)))
               : "memory");
  return value;
}

// A barrier of the cluster in two parts, with other work between them. What any of its threads wrote before the first
// is there behind the second; behind packets for other GPUs the first waits for them to be there. Every thread that
// arrives awaits before it arrives again, or leaves the kernel.
MSCCLPP_DEVICE void arriveAtCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
MSCCLPP_DEVICE void awaitCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#else
  __syncthreads();
#endif
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
