// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values that are stored in 8 bits with a scale beside them: the largest magnitude of those that share it becomes the
// largest number of the type, or, where the scale is a power of two, fits below it.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/number.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Types of quantised values, and the largest magnitude of each.
template <class Q>
inline constexpr float largestOf = 0;
template <>
inline constexpr float largestOf<Float8E4M3> = 448;
template <>
inline constexpr float largestOf<Float8E5M2> = 57344;
template <>
inline constexpr float largestOf<std::int8_t> = 127;

// What quantise() stores for a value that has been divided by its scale.
template <class Q>
MSCCLPP_HOST_DEVICE constexpr Q quantised(float value) {
  if constexpr (std::integral<Q>) {
    auto const bound = value < -largestOf<Q> ? -largestOf<Q> : value > largestOf<Q> ? largestOf<Q> : value;
    constexpr float whole = 12582912;  // 1.5 * 2^23: numbers near it have no digits behind the point
    return static_cast<Q>((bound + whole) - whole);
  } else {
    return Q(value);
  }
}

// A scale that is a power of two, as the 8 exponent bits of a float: to multiply by it is exact, so there is one
// rounding there and none back. Of values that are not all finite it is an infinity, and what goes with it is 0: back
// comes NaN.
struct PowerScale {
  std::uint8_t bits;

  static constexpr std::uint8_t notFinite = 255;

  // The smallest for values of `largest` magnitude as Q, but no less than 2^-126. Magnitudes compare as their bits do.
  template <class Q>
  MSCCLPP_HOST_DEVICE static constexpr PowerScale of(std::uint32_t largest) {
    if (largest >= std::uint32_t{notFinite} << 23) return {notFinite};
    auto const above = static_cast<std::int32_t>(largest) - bitCast<std::int32_t>(largestOf<Q>);
    auto const exponent = 127 + ((above + 0x7fffff) >> 23);
    return {static_cast<std::uint8_t>(exponent < 1 ? 1 : exponent)};
  }
  template <class Q>
  MSCCLPP_HOST_DEVICE constexpr Q quantise(float value) const {
    return bits == notFinite ? Q{} : quantised<Q>(value * bitCast<float>((254u - bits) << 23));
  }
  template <class Q>
  MSCCLPP_HOST_DEVICE constexpr float restore(Q value) const {
    return convertNumber<float>(value) * bitCast<float>(std::uint32_t{bits} << 23);
  }
};

// The bits of |value|.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t magnitudeBits(float value) {
  return bitCast<std::uint32_t>(value) & 0x7fffffffu;
}

// By which part of the largest magnitude of its group a value changes at most, there and back with a PowerScale: half a
// unit in the last place of the largest numbers; of integers, whose scale may be twice what would do, a whole one.
template <class Q>
inline constexpr double largestChange = 0;
template <>
inline constexpr double largestChange<Float8E4M3> = 1.0 / 16;
template <>
inline constexpr double largestChange<Float8E5M2> = 1.0 / 8;
template <>
inline constexpr double largestChange<std::int8_t> = 1.0 / 127;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
