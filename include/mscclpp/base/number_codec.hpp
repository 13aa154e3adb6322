// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversion between float and the small binary floating-point formats, in integers: exact, constexpr, the same on
// every machine. Rounds to nearest, ties to even. A GPU uses its own instructions where it has them
// (arch/cuda/number.hpp); tests hold both to this.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"

namespace mscclpp {

// A format: a sign bit, `exponentBits`, `mantissaBits`. `ieee`: the largest exponent is kept for infinity and NaN;
// otherwise only the all-ones code is NaN. `saturate`: too large a value becomes the largest finite one.
template <int ExponentBits, int MantissaBits, bool Ieee, bool Saturate>
struct SmallFloatFormat {
  static constexpr int exponentBits = ExponentBits;
  static constexpr int mantissaBits = MantissaBits;
  static constexpr bool ieee = Ieee;
  static constexpr bool saturate = Saturate;
};

// IEEE binary16 and bfloat16: with infinities, which is what too large a value becomes.
struct HalfFormat : SmallFloatFormat<5, 10, true, false> {};
struct BFloat16Format : SmallFloatFormat<8, 7, true, false> {};
struct Float8E4M3Format : SmallFloatFormat<4, 3, false, true> {};  // OCP E4M3: no infinity, largest 448
struct Float8E5M2Format : SmallFloatFormat<5, 2, true, true> {};   // OCP E5M2, converted with saturation

// The code of `value` in format F, in the lowest bits. Subnormal numbers and the sign of zero are kept; of a NaN its
// sign is, not its payload.
template <class F>
MSCCLPP_HOST_DEVICE constexpr std::uint32_t encodeSmallFloat(float value) {
  constexpr int mantissa = F::mantissaBits;
  constexpr int bias = (1 << (F::exponentBits - 1)) - 1;
  constexpr std::uint32_t exponentMask = (1u << F::exponentBits) - 1;
  constexpr std::uint32_t signBit = 1u << (F::exponentBits + mantissa);
  constexpr std::uint32_t firstNonFinite = F::ieee ? exponentMask << mantissa : signBit - 1;
  constexpr std::uint32_t nan = F::ieee ? firstNonFinite | (1u << (mantissa - 1)) : firstNonFinite;

  auto const bits = bitCast<std::uint32_t>(value);
  auto const sign = (bits >> 31) != 0 ? signBit : 0u;
  auto const magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | nan;

  bool const normal32 = (magnitude >> 23) != 0;
  auto const fraction = (magnitude & 0x7fffffu) | (normal32 ? 0x800000u : 0u);
  int const exponent = (normal32 ? static_cast<int>(magnitude >> 23) : 1) - 127 + bias;
  // Below the smallest normal number the mantissa moves right and the exponent field stays zero.
  int const drop = 23 - mantissa + (exponent < 1 ? 1 - exponent : 0);
  if (drop > 24) return sign;
  auto code = fraction >> drop;
  if (exponent >= 1 && normal32) code += static_cast<std::uint32_t>(exponent - 1) << mantissa;
  auto const rest = fraction & ((1u << drop) - 1);
  auto const tie = 1u << (drop - 1);
  if (rest > tie || (rest == tie && (code & 1u) != 0)) ++code;
  if (magnitude == 0x7f800000u || code >= firstNonFinite)
    return sign | (F::saturate ? firstNonFinite - 1 : firstNonFinite);
  return sign | code;
}

// The number that a code of F stands for, exactly. Bits above the format's are ignored.
template <class F>
MSCCLPP_HOST_DEVICE constexpr float decodeSmallFloat(std::uint32_t code) {
  constexpr int mantissa = F::mantissaBits;
  constexpr int bias = (1 << (F::exponentBits - 1)) - 1;
  constexpr std::uint32_t exponentMask = (1u << F::exponentBits) - 1;
  constexpr std::uint32_t signBit = 1u << (F::exponentBits + mantissa);

  auto const sign = (code & signBit) != 0 ? 0x80000000u : 0u;
  auto const exponent = (code >> mantissa) & exponentMask;
  auto fraction = code & ((1u << mantissa) - 1);
  if (F::ieee && exponent == exponentMask) return bitCast<float>(sign | 0x7f800000u | (fraction << (23 - mantissa)));
  if (!F::ieee && (code & (signBit - 1)) == signBit - 1) return bitCast<float>(sign | 0x7fc00000u);
  if (exponent != 0) {
    auto const exponent32 = exponent + static_cast<std::uint32_t>(127 - bias);
    return bitCast<float>(sign | (exponent32 << 23) | (fraction << (23 - mantissa)));
  }
  if (F::exponentBits == 8) return bitCast<float>(sign | (fraction << (23 - mantissa)));
  if (fraction == 0) return bitCast<float>(sign);
  auto exponent32 = static_cast<std::uint32_t>(127 - bias + 1);
  while ((fraction >> mantissa) == 0) {
    fraction <<= 1;
    --exponent32;
  }
  return bitCast<float>(sign | (exponent32 << 23) | ((fraction << (23 - mantissa)) & 0x7fffffu));
}

}  // namespace mscclpp
