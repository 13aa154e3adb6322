// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products by a warpgroup's tensor cores, on an NVIDIA GPU. Twin of arch/sim/warpgroup_multiply.hpp.
//
// wgmma is an instruction of compute capability 9.0 alone, and of code that is compiled for sm_90a; elsewhere these
// trap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/device/arch/cuda/bulk_copy.hpp"
#include "mscclpp/device/arch/cuda/thread.hpp"
#include "mscclpp/device/tiles/swizzled_rows.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE constexpr bool hasWarpgroupMultiply() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  return true;
#else
  return false;
#endif
}

// 64 rows times 128 rows, over 16 columns of both. Starts it; the registers are the tensor cores' until it is awaited.
MSCCLPP_DEVICE void startMultiply(float (&sums)[64], std::uint64_t a, std::uint64_t b) {
  if constexpr (hasWarpgroupMultiply()) {
    asm volatile(
        "{\n\t"
        ".reg .pred add;\n\t"
        "setp.eq.u32 add, 0, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, add, 1, 1, 0, 0;\n\t"
        "}"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]),
          "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]),
          "+f"(sums[14]), "+f"(sums[15]), "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]),
          "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31]),
          "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]), "+f"(sums[36]), "+f"(sums[37]),
          "+f"(sums[38]), "+f"(sums[39]), "+f"(sums[40]), "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]),
          "+f"(sums[44]), "+f"(sums[45]), "+f"(sums[46]), "+f"(sums[47]), "+f"(sums[48]), "+f"(sums[49]),
          "+f"(sums[50]), "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
          "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]), "+f"(sums[61]),
          "+f"(sums[62]), "+f"(sums[63])
        : "l"(a), "l"(b));
  }
}

template <unsigned Parts>
MSCCLPP_DEVICE void multiplySwizzled(float (&sums)[Parts][64], std::byte const* a, std::byte const* b) {
  if constexpr (hasWarpgroupMultiply()) {
    syncWarp();  // lanes may have come from a wait one after the other
    // What the loading threads wrote, tensor cores read by another way (the async proxy).
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    auto const rowsOfA = sharedAddress(a);
    auto const rowsOfB = sharedAddress(b);
    MSCCLPP_UNROLL
    for (unsigned byte = 0; byte < SwizzledRows::rowBytes; byte += 32) {
      auto const left = SwizzledRows::descriptor(rowsOfA, byte);
      MSCCLPP_UNROLL
      for (unsigned part = 0; part < Parts; ++part) {
        startMultiply(sums[part], left, SwizzledRows::descriptor(rowsOfB + part * 128 * SwizzledRows::rowBytes, byte));
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    // Nothing that reads or moves a sum comes ahead of the wait.
    MSCCLPP_UNROLL
    for (unsigned part = 0; part < Parts; ++part) {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < 64; ++i) asm volatile("" : "+f"(sums[part][i])::"memory");
    }
  } else {
    trap(
        "products of warpgroups need a GPU of compute capability 9.0 and code compiled for sm_90a; see "
        "hasWarpgroupMultiply()");
  }
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
