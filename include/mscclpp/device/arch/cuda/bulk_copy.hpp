// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk copies and the barriers that count their bytes, on an NVIDIA GPU. Twin of arch/sim/bulk_copy.hpp.
//
// One or two PTX instructions each. One source is compiled for several generations at once, so what a generation lacks
// traps when it is reached; code that has another way asks hasBulkCopies() with `if constexpr`.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/device/arch/cuda/thread.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE constexpr bool hasBulkCopies() {
#if __CUDA_ARCH__ >= 900
  return true;
#else
  return false;
#endif
}

[[noreturn]] MSCCLPP_DEVICE void noBulkCopies() {
  trap("bulk copies need a GPU of compute capability 9.0 or later, and code compiled for it; see hasBulkCopies()");
}

MSCCLPP_DEVICE std::uint32_t sharedAddress(void const* address) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
}

MSCCLPP_DEVICE void bulkStore(void* dst, void const* src, std::uint32_t bytes) {
  if constexpr (hasBulkCopies()) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(sharedAddress(src)),
                 "r"(bytes)
                 : "memory");
  } else {
    noBulkCopies();
  }
}

MSCCLPP_DEVICE void bulkCommit() {
  if constexpr (hasBulkCopies()) {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  } else {
    noBulkCopies();
  }
}

template <unsigned N = 0>
MSCCLPP_DEVICE void bulkWait() {
  if constexpr (hasBulkCopies()) {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
  } else {
    noBulkCopies();
  }
}

template <unsigned N = 0>
MSCCLPP_DEVICE void bulkWaitRead() {
  if constexpr (hasBulkCopies()) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
  } else {
    noBulkCopies();
  }
}

MSCCLPP_DEVICE void bulkFence() {
  if constexpr (hasBulkCopies()) {
    asm volatile("fence.proxy.async;" ::: "memory");
  } else {
    noBulkCopies();
  }
}

MSCCLPP_DEVICE void bulkLoad(void* dst, void const* src, std::uint32_t bytes, std::uint64_t* barrier) {
  if constexpr (hasBulkCopies()) {
    // The block's own shared memory is part of its cluster's; PTX of the first Hopper tool kits knows this form only.
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     sharedAddress(dst)),
                 "l"(src), "r"(bytes), "r"(sharedAddress(barrier))
                 : "memory");
  } else {
    noBulkCopies();
  }
}

// Where an address that ofClusterBlock() has given lies in the shared memory of the cluster.
MSCCLPP_DEVICE std::uint32_t clusterAddress(void const* address) {
  std::uint64_t result;
  asm("cvta.to.shared::cluster.u64 %0, %1;" : "=l"(result) : "l"(address));
  return static_cast<std::uint32_t>(result);
}

template <class T>
MSCCLPP_DEVICE void putCounted(T* dst, T const& value, std::uint64_t* barrier) {
  if constexpr (!hasBulkCopies()) {
    noBulkCopies();
  } else if (clusterBlocks() == 1) {
    // The instructions below are illegal where no other block is in the cluster.
    *dst = value;
    asm volatile("fence.acq_rel.cta;\n\tmbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(
                     sharedAddress(barrier)),
                 "n"(sizeof(T))
                 : "memory");
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(clusterAddress(dst)),
                 "r"(bitCast<std::uint32_t>(value)), "r"(clusterAddress(barrier))
                 : "memory");
  } else {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(clusterAddress(dst)),
                 "l"(bitCast<std::uint64_t>(value)), "r"(clusterAddress(barrier))
                 : "memory");
  }
}

// Copies see the new barrier: the fence is for them.
MSCCLPP_DEVICE void initBarrier(std::uint64_t* barrier, unsigned count) {
  if constexpr (hasBulkCopies()) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(count) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  } else {
    noBulkCopies();
  }
}

MSCCLPP_DEVICE void invalidateBarrier(std::uint64_t* barrier) {
  if constexpr (hasBulkCopies()) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(sharedAddress(barrier)) : "memory");
  } else {
    noBulkCopies();
  }
}

MSCCLPP_DEVICE void arriveBarrier(std::uint64_t* barrier) {
  if constexpr (hasBulkCopies()) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(barrier)) : "memory");
  } else {
    noBulkCopies();
  }
}

MSCCLPP_DEVICE void arriveBarrier(std::uint64_t* barrier, std::uint32_t bytes) {
  if constexpr (hasBulkCopies()) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(bytes)
                 : "memory");
  } else {
    noBulkCopies();
  }
}

// 128 bytes of neighbouring threads are one line, which the second-level cache then fetches whole.
MSCCLPP_DEVICE void copyChunk(void* dst, void const* src, unsigned bytes) {
  if constexpr (hasBulkCopies()) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(sharedAddress(dst)), "l"(src),
                 "r"(bytes)
                 : "memory");
  } else {
    noBulkCopies();
  }
}

MSCCLPP_DEVICE void arriveBehindCopies(std::uint64_t* barrier) {
  if constexpr (hasBulkCopies()) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(sharedAddress(barrier)) : "memory");
  } else {
    noBulkCopies();
  }
}

// May sleep in hardware for about a microsecond, no longer, so that its caller soon looks at its watch again.
MSCCLPP_DEVICE bool testBarrier(std::uint64_t* barrier, unsigned parity) {
  if constexpr (hasBulkCopies()) {
    constexpr std::uint32_t longestSleepNs = 1000;
    std::uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(sharedAddress(barrier)), "r"(parity), "r"(longestSleepNs)
        : "memory");
    return ended != 0;
  } else {
    noBulkCopies();
  }
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
