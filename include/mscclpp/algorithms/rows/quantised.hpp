// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values that are stored in 8 bits with a scale beside them: the largest magnitude of those that share it becomes the
// largest number of the type.
#pragma once

#include <concepts>
#include <cstdint>

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

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
