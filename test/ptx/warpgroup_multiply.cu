// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of warpgroups: all of a stage's are started behind one fence, and are waited for once.
// ptx-architectures: 90a
#include "mscclpp/device/tiles/tile_product.hpp"

using namespace mscclpp;

// ptx: multiplyKernel : fence\.proxy\.async\.shared::cta;
// ptx: multiplyKernel : wgmma\.fence\.sync\.aligned;
// ptx: multiplyKernel : wgmma\.mma_async\.sync\.aligned\.m64n128k16\.f32\.bf16\.bf16 \{
// ptx: multiplyKernel : wgmma\.mma_async
// ptx: multiplyKernel : wgmma\.mma_async
// ptx: multiplyKernel : wgmma\.mma_async
// ptx: multiplyKernel : wgmma\.commit_group\.sync\.aligned;
// ptx: multiplyKernel : wgmma\.wait_group\.sync\.aligned 0;
// ptx-not: multiplyKernel : wgmma\.wait_group.*wgmma\.|trap
__global__ void multiplyKernel(float* out) {
  float sums[1][64] = {};
  arch::multiplySwizzled(sums, arch::dynamicShared(), arch::dynamicShared() + 16384);
  for (unsigned i = 0; i < 64; ++i) out[threadIdx.x * 64 + i] = sums[0][i];
}

// ptx: loadKernel : cp\.async\.cg\.shared\.global\.L2::128B \[%r\d+\], \[%rd\d+\], 16, %r
// ptx: loadKernel : cp\.async\.mbarrier\.arrive\.noinc\.shared::cta\.b64
// ptx-not: loadKernel : trap|ld\.global
__global__ void loadKernel(std::byte const* from, unsigned bytes, layout::Watch* watch) {
  auto& barrier = arch::blockShared<BulkBarrier, std::byte>();
  copyChunk(arch::dynamicShared() + threadIdx.x * 16, from + threadIdx.x * 16, bytes);
  barrier.arriveBehindCopies();
}
