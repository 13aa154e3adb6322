// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk copies and their barriers: one instruction each, and the fence where the contract has one.
// ptx-architectures: 90,100
#include "mscclpp/device/bulk_copy.hpp"

using namespace mscclpp;

// ptx: storeKernel : fence\.proxy\.async;
// ptx: storeKernel : cp\.async\.bulk\.global\.shared::cta\.bulk_group \[
// ptx: storeKernel : cp\.async\.bulk\.commit_group;
// ptx: storeKernel : cp\.async\.bulk\.wait_group\.read 2;
// ptx: storeKernel : cp\.async\.bulk\.wait_group 0;
// ptx-not: storeKernel : trap
__global__ void storeKernel(std::byte* dst, std::uint32_t bytes) {
  bulkFence();
  bulkStore(dst, arch::dynamicShared(), bytes);
  bulkCommit();
  bulkWaitRead<2>();
  bulkWait();
}

// The barrier is made for copies as well: their fence follows.
// ptx: loadKernel : mbarrier\.init\.shared::cta\.b64
// ptx: loadKernel : fence\.proxy\.async\.shared::cta;
// ptx: loadKernel : mbarrier\.arrive\.expect_tx\.shared::cta\.b64
// ptx: loadKernel : cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes \[
// ptx: loadKernel : mbarrier\.try_wait\.parity\.shared::cta\.b64
__global__ void loadKernel(std::byte const* src, std::uint32_t bytes, layout::Watch* watch) {
  auto& barrier = arch::blockShared<BulkBarrier, std::byte>();
  barrier.init(1);
  barrier.arriveExpect(bytes);
  bulkLoad(arch::dynamicShared(), src, bytes, barrier);
  barrier.wait(watch, 0);
}

// ptx: arriveKernel : mbarrier\.arrive\.shared::cta\.b64
// ptx: arriveKernel : mbarrier\.inval\.shared::cta\.b64
// ptx-not: arriveKernel : expect_tx
__global__ void arriveKernel() {
  auto& barrier = arch::blockShared<BulkBarrier, std::byte>();
  barrier.arrive();
  barrier.invalidate();
}

// Code that asks first has the other way only where it is needed.
// ptx: choosingKernel : cp\.async\.bulk\.global
// ptx-not: choosingKernel : trap|st\.global
__global__ void choosingKernel(std::byte* dst, std::uint32_t bytes) {
  if constexpr (hasBulkCopies()) {
    bulkStore(dst, arch::dynamicShared(), bytes);
  } else {
    dst[threadIdx.x] = arch::dynamicShared()[threadIdx.x];
  }
}
