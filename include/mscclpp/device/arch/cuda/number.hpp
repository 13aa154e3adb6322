// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Float conversion by the GPU's instructions. Twin of arch/sim/number.hpp.
//
// FP8 instructions begin with compute capability 8.9; older devices use the integer form. So does the host pass of the
// same source.
#pragma once

#include <cstdint>

#include "mscclpp/base/number_codec.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

template <class F>
MSCCLPP_HOST_DEVICE std::uint32_t encode(float value) {
#if defined(__CUDA_ARCH__)
  [[maybe_unused]] std::uint16_t code;
  if constexpr (F::exponentBits == 5 && F::mantissaBits == 10) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
    return code;
  } else if constexpr (F::exponentBits == 8) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(value));
    return code;
  }
#if __CUDA_ARCH__ >= 890
  else if constexpr (F::mantissaBits == 3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(value));
    return code & 0xffu;
  } else if constexpr (F::mantissaBits == 2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(value));
    return code & 0xffu;
  }
#endif
  else {
    return encodeSmallFloat<F>(value);
  }
#else
  return encodeSmallFloat<F>(value);
#endif
}

template <class F>
MSCCLPP_HOST_DEVICE float decode(std::uint32_t code) {
#if defined(__CUDA_ARCH__)
  if constexpr (F::exponentBits == 5 && F::mantissaBits == 10) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<std::uint16_t>(code)));
    return value;
  } else if constexpr (F::exponentBits == 8) {
    return bitCast<float>(code << 16);
  } else if constexpr (F::mantissaBits == 2) {
    // E5M2 is the upper half of a binary16.
    return decode<HalfFormat>(code << 8);
  }
#if __CUDA_ARCH__ >= 890
  else if constexpr (F::mantissaBits == 3) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(code)));
    return decode<HalfFormat>(halves & 0xffffu);
  }
#endif
  else {
    return decodeSmallFloat<F>(code);
  }
#else
  return decodeSmallFloat<F>(code);
#endif
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
