// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constexpr helpers that device code may call. The standard library has them all, but its functions are host functions
// to nvcc, and a user should not need a compiler flag for our headers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/base/config.hpp"

namespace mscclpp {

// The same bits as another type, as std::bit_cast.
template <class To, class From>
requires(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>)
    MSCCLPP_HOST_DEVICE constexpr To bitCast(From const& from) {
  return __builtin_bit_cast(To, from);
}

// minimum() and maximum() as those of std, by value: `a` where the two are equal, or one is NaN.
template <class T>
MSCCLPP_HOST_DEVICE constexpr T minimum(T a, T b) {
  return b < a ? b : a;
}

template <class T>
MSCCLPP_HOST_DEVICE constexpr T maximum(T a, T b) {
  return a < b ? b : a;
}

// value / by, rounded up. Of numbers from 0 on, whose sum T holds; `by` is not 0.
template <class T>
MSCCLPP_HOST_DEVICE constexpr T ceilDiv(T value, T by) {
  return (value + by - 1) / by;
}

// The least multiple of `to`, a power of two or not, that is no less than `value`. As ceilDiv().
template <class T>
MSCCLPP_HOST_DEVICE constexpr T roundUp(T value, T to) {
  return ceilDiv(value, to) * to;
}

// Where `count` elements of `each` bytes from `offset` on end, for comparisons with a size: the largest number where 64
// bits do not hold it, so that a range that wraps lies inside of nothing.
MSCCLPP_HOST_DEVICE constexpr std::uint64_t rangeEnd(std::uint64_t offset, std::uint64_t count,
                                                     std::uint64_t each = 1) {
  constexpr auto most = ~std::uint64_t{0};
  return count <= (most - offset) / each ? offset + count * each : most;
}

// Whether the address is a multiple of `bytes`, a power of two or not.
MSCCLPP_HOST_DEVICE bool isAligned(void const* pointer, unsigned bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace mscclpp
