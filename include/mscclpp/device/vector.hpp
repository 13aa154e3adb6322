// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A few elements in registers, with element-wise arithmetic: what the epilogue of a collective gets to work on.
//
// Indices are compile-time constants in all functions here, so a Vector never leaves registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/number.hpp"

namespace mscclpp {

template <class T, unsigned N>
struct Vector {
  using Element = T;
  static constexpr unsigned size = N;

  T element[N];

  MSCCLPP_HOST_DEVICE constexpr T& operator[](unsigned i) { return element[i]; }
  MSCCLPP_HOST_DEVICE constexpr T const& operator[](unsigned i) const { return element[i]; }
};

// {f(v[0]), f(v[1]), ...}
template <class T, unsigned N, class F>
MSCCLPP_HOST_DEVICE constexpr auto map(Vector<T, N> const& v, F&& f) {
  Vector<decltype(f(v[0])), N> result{};
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < N; ++i) result[i] = f(v[i]);
  return result;
}

// {f(a[0], b[0]), f(a[1], b[1]), ...}
template <class T, unsigned N, class F>
MSCCLPP_HOST_DEVICE constexpr auto map(Vector<T, N> const& a, Vector<T, N> const& b, F&& f) {
  Vector<decltype(f(a[0], b[0])), N> result{};
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < N; ++i) result[i] = f(a[i], b[i]);
  return result;
}

// Each element as convertNumber() converts it.
template <class To, class From, unsigned N>
MSCCLPP_HOST_DEVICE constexpr Vector<To, N> convert(Vector<From, N> const& v) {
  Vector<To, N> result{};
  MSCCLPP_UNROLL
  for (unsigned i = 0; i < N; ++i) result[i] = convertNumber<To>(v[i]);
  return result;
}

template <class T, unsigned N>
MSCCLPP_HOST_DEVICE constexpr Vector<T, N> operator+(Vector<T, N> const& a, Vector<T, N> const& b) {
  return map(a, b, [](T x, T y) { return static_cast<T>(x + y); });
}

template <class T, unsigned N>
MSCCLPP_HOST_DEVICE constexpr Vector<T, N> operator+(Vector<T, N> const& v, std::type_identity_t<T> scalar) {
  return map(v, [scalar](T x) { return static_cast<T>(x + scalar); });
}

template <class T, unsigned N>
MSCCLPP_HOST_DEVICE constexpr Vector<T, N> operator-(Vector<T, N> const& a, Vector<T, N> const& b) {
  return map(a, b, [](T x, T y) { return static_cast<T>(x - y); });
}

template <class T, unsigned N>
MSCCLPP_HOST_DEVICE constexpr Vector<T, N> operator-(Vector<T, N> const& v, std::type_identity_t<T> scalar) {
  return map(v, [scalar](T x) { return static_cast<T>(x - scalar); });
}

template <class T, unsigned N>
MSCCLPP_HOST_DEVICE constexpr Vector<T, N> operator*(Vector<T, N> const& a, Vector<T, N> const& b) {
  return map(a, b, [](T x, T y) { return static_cast<T>(x * y); });
}

template <class T, unsigned N>
MSCCLPP_HOST_DEVICE constexpr Vector<T, N> operator*(Vector<T, N> const& v, std::type_identity_t<T> scalar) {
  return map(v, [scalar](T x) { return static_cast<T>(x * scalar); });
}

// `Words` 32-bit words that move as one access and hold whole elements. May alias: it stands for whatever a buffer
// holds.
template <unsigned Words>
struct alignas(Words * 4) [[gnu::may_alias]] Payload {
  std::uint32_t word[Words];
};

template <class T, unsigned Words>
using ElementsOf = Vector<T, Words * 4 / sizeof(T)>;

// unpack() and pack(): the same bits as elements and as a payload, whose words they fill.
template <class T, unsigned Words>
MSCCLPP_HOST_DEVICE constexpr ElementsOf<T, Words> unpack(Payload<Words> const& payload) {
  return bitCast<ElementsOf<T, Words>>(payload);
}

template <class T, unsigned N>
MSCCLPP_HOST_DEVICE constexpr Payload<N * sizeof(T) / 4> pack(Vector<T, N> const& elements) {
  return bitCast<Payload<N * sizeof(T) / 4>>(elements);
}

}  // namespace mscclpp
