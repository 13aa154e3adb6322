// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On a generation without bulk copies they trap, and code that asks first takes its other way.
// ptx-architectures: 80
#include "mscclpp/device/bulk_copy.hpp"

using namespace mscclpp;

// ptx: storeKernel : trap
// ptx-not: storeKernel : bulk
__global__ void storeKernel(std::byte* dst, std::uint32_t bytes) { bulkStore(dst, arch::dynamicShared(), bytes); }

// ptx: choosingKernel : st\.global
// ptx-not: choosingKernel : trap|bulk
__global__ void choosingKernel(std::byte* dst, std::uint32_t bytes) {
  if constexpr (hasBulkCopies()) {
    bulkStore(dst, arch::dynamicShared(), bytes);
  } else {
    dst[threadIdx.x] = arch::dynamicShared()[threadIdx.x];
  }
}
