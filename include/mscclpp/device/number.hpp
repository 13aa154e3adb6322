// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The element types of collectives, and what is needed to compute with them.
//
// Half, BFloat16, Float8E4M3 and Float8E5M2 are storage types: bit-compatible with __half, __nv_bfloat16,
// __nv_fp8_e4m3 and __nv_fp8_e5m2 (pass those pointers through reinterpret_cast), converted explicitly to and from
// float. They need no CUDA header, so host code and the simulated machine use them too. Conversion to FP8 saturates.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "mscclpp/base/number_codec.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/number.hpp"
#else
#include "mscclpp/device/arch/sim/number.hpp"
#endif

namespace mscclpp {

// A small float as its bits. Conversions are the GPU's own instructions where it has them, with the results of
// number_codec.hpp.
template <class F, class Bits>
struct SmallFloat {
  Bits bits;

  SmallFloat() = default;
  MSCCLPP_HOST_DEVICE constexpr explicit SmallFloat(float value)
      : bits(static_cast<Bits>(__builtin_is_constant_evaluated() ? encodeSmallFloat<F>(value)
                                                                 : arch::encode<F>(value))) {}
  MSCCLPP_HOST_DEVICE constexpr explicit operator float() const {
    return __builtin_is_constant_evaluated() ? decodeSmallFloat<F>(bits) : arch::decode<F>(bits);
  }
  // The number that has this code.
  MSCCLPP_HOST_DEVICE static constexpr SmallFloat fromBits(Bits bits) {
    SmallFloat value{};
    value.bits = bits;
    return value;
  }
};

using Half = SmallFloat<HalfFormat, std::uint16_t>;
using BFloat16 = SmallFloat<BFloat16Format, std::uint16_t>;
using Float8E4M3 = SmallFloat<Float8E4M3Format, std::uint8_t>;
using Float8E5M2 = SmallFloat<Float8E5M2Format, std::uint8_t>;
using bf16 = BFloat16;

template <class T>
inline constexpr bool isSmallFloat = false;
template <class F, class Bits>
inline constexpr bool isSmallFloat<SmallFloat<F, Bits>> = true;

// What a collective can reduce: the small floats, float, double, and integers of 8 to 64 bits.
template <class T>
concept Number = isSmallFloat<T> || std::same_as<T, float> || std::same_as<T, double> ||
    (std::integral<T> && !std::same_as<T, bool> && sizeof(T) <= 8);

namespace detail {

template <class T>
struct AccumulatorOf {
  using type = T;
};
template <class T>
requires isSmallFloat<T>
struct AccumulatorOf<T> {
  using type = float;
};
template <class T>
requires(std::integral<T> && sizeof(T) < 4) struct AccumulatorOf<T> {
  using type = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
};

}  // namespace detail

// The type in which elements are combined unless the caller names another: float for the small floats, 32 bits for
// short integers, the type itself otherwise.
template <Number T>
using DefaultAccumulator = typename detail::AccumulatorOf<T>::type;

// As static_cast, but to and from small floats by way of float: long integers and doubles are rounded twice there.
template <class To, class From>
MSCCLPP_HOST_DEVICE constexpr To convertNumber(From value) {
  if constexpr (std::same_as<To, From>) {
    return value;
  } else if constexpr (isSmallFloat<From>) {
    return convertNumber<To>(static_cast<float>(value));
  } else if constexpr (isSmallFloat<To>) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

// "float32", "bfloat16", "float8_e4m3", "int16" and the like; of integers by size and sign alone.
template <Number T>
constexpr std::string_view numberName() {
  if constexpr (std::same_as<T, Half>) return "float16";
  if constexpr (std::same_as<T, BFloat16>) return "bfloat16";
  if constexpr (std::same_as<T, Float8E4M3>) return "float8_e4m3";
  if constexpr (std::same_as<T, Float8E5M2>) return "float8_e5m2";
  if constexpr (std::same_as<T, float>) return "float32";
  if constexpr (std::same_as<T, double>) return "float64";
  if constexpr (std::integral<T> && std::is_signed_v<T>) {
    return sizeof(T) == 1 ? "int8" : sizeof(T) == 2 ? "int16" : sizeof(T) == 4 ? "int32" : "int64";
  } else {
    return sizeof(T) == 1 ? "uint8" : sizeof(T) == 2 ? "uint16" : sizeof(T) == 4 ? "uint32" : "uint64";
  }
}

}  // namespace mscclpp
