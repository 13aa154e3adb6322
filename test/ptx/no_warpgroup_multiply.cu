// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In code that is not for compute capability 9.0 alone they trap.
// ptx-architectures: 80,90,100
#include "mscclpp/device/tiles/tile_product.hpp"

using namespace mscclpp;

// ptx: multiplyKernel : trap
// ptx-not: multiplyKernel : wgmma
__global__ void multiplyKernel(float* out) {
  float sums[1][64] = {};
  arch::multiplySwizzled(sums, arch::dynamicShared(), arch::dynamicShared() + 16384);
  out[threadIdx.x] = sums[0][0];
}
