// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Accesses to multicast memory: one address that stands for the same place in the memory of every rank of a group, with
// the switch between them doing the work (NVLink SHARP). From compute capability 9.0; hasMultimem() tells, and
// elsewhere each of these traps.
//
//   multimemLoadReduce<Order, Scope, Op = Sum, Acc = void>(p)   the values of all ranks, combined by the switch
//   multimemStore<Order, Scope>(p, value)                       writes the value into every rank's memory
//   multimemStoreReduce<Order, Scope, Op = Sum>(p, value)       combines the value with what every rank's memory holds
//   multimemFence()                                             between accesses by this address and by plain ones
//
// `p` is a multicast address (host/multicast.hpp, or the handle of a SwitchChannel), aligned to the whole value, and
// nothing else may access it; the memory behind it has ordinary addresses too, on each rank its own. Values are Vectors
// of 4, 8 or 16 bytes of one of these types, with aliases below:
//
//   float 1, 2, 4                       Sum             double 1                          Sum
//   Half, BFloat16 2, 4, 8              Sum; by loads Min and Max too
//   int32, uint32, int64, uint64 1      Sum, Min, Max
//   Float8E4M3, Float8E5M2 4, 8, 16     by loads Sum, Min, Max, where hasMultimemFloat8()
//
// Loads are relaxed or acquire, stores and reductions relaxed or release; each rank's part of them is one such access
// of its own, and only single elements (pairs of 16-bit ones, quadruples of FP8) arrive whole. In what order the switch
// adds is not known; Acc is the type it adds in: float for the small floats unless they themselves, or Half for FP8,
// are named. Min and Max of floats leave NaN to the hardware.
//
// Order. An address of multicast memory and the plain one of the same bytes are different ways to memory (PTX: virtual
// aliases). A plain access and a multicast one, ordered by barriers or signals as always, need a multimemFence()
// between them as well: by the thread that made the first, or that knows of it, before it signals; or by the one that
// makes the second, after it has learned of the first. Pairs of ordered accesses (flags, packets) need none, nor what
// an earlier kernel has done.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/vector.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/multimem.hpp"
#else
#include "mscclpp/device/arch/sim/multimem.hpp"
#endif

namespace mscclpp {

namespace detail {

template <class V>
struct MultimemValue {
  using Element = V;
  static constexpr unsigned count = 1;
};
template <class T, unsigned N>
struct MultimemValue<Vector<T, N>> {
  using Element = T;
  static constexpr unsigned count = N;
};

template <class T>
inline constexpr bool isWideInteger = std::integral<T> && sizeof(T) >= 4;

}  // namespace detail

// Whether the switch can move, and combine by Op, elements of type T; Acc as above.
template <class T>
inline constexpr bool multimemMoves =
    isSmallFloat<T> || std::same_as<T, float> || std::same_as<T, double> || detail::isWideInteger<T>;

template <class T, class Op, class Acc = void>
inline constexpr bool multimemLoadReduces = false;
template <class T>
inline constexpr bool multimemLoadReduces<T, Sum> = multimemMoves<T>;
template <class T>
inline constexpr bool multimemLoadReduces<T, Sum, T> = multimemMoves<T> && sizeof(T) != 1;
template <class T>
requires isSmallFloat<T>
inline constexpr bool multimemLoadReduces<T, Sum, float> = true;
template <class T>
requires(isSmallFloat<T> && sizeof(T) == 1) inline constexpr bool multimemLoadReduces<T, Sum, Half> = true;
template <class T>
inline constexpr bool multimemLoadReduces<T, Min> = detail::isWideInteger<T> || isSmallFloat<T>;
template <class T>
inline constexpr bool multimemLoadReduces<T, Max> = multimemLoadReduces<T, Min>;

template <class T, class Op>
inline constexpr bool multimemStoreReduces = detail::isWideInteger<T>&& multimemLoadReduces<T, Op>;
template <class T>
inline constexpr bool multimemStoreReduces<T, Sum> = multimemMoves<T> && sizeof(T) != 1;

// The most elements of T that one instruction combines, and the fewest.
template <class T>
inline constexpr unsigned multimemWidest = std::same_as<T, float> || isSmallFloat<T>
                                               ? 16u / static_cast<unsigned>(sizeof(T))
                                               : 1u;
template <class T>
inline constexpr unsigned multimemNarrowest = maximum(4u / static_cast<unsigned>(sizeof(T)), 1u);

template <class T, unsigned N>
inline constexpr bool multimemHasWidth = N >= multimemNarrowest<T>&& N <= multimemWidest<T> && (N & (N - 1)) == 0;

using f32x1 = Vector<float, 1>;
using f32x2 = Vector<float, 2>;
using f32x4 = Vector<float, 4>;
using f64x1 = Vector<double, 1>;
using f16x2 = Vector<Half, 2>;
using f16x4 = Vector<Half, 4>;
using f16x8 = Vector<Half, 8>;
using bf16x2 = Vector<BFloat16, 2>;
using bf16x4 = Vector<BFloat16, 4>;
using bf16x8 = Vector<BFloat16, 8>;
using f8e4m3x4 = Vector<Float8E4M3, 4>;
using f8e4m3x8 = Vector<Float8E4M3, 8>;
using f8e4m3x16 = Vector<Float8E4M3, 16>;
using f8e5m2x4 = Vector<Float8E5M2, 4>;
using f8e5m2x8 = Vector<Float8E5M2, 8>;
using f8e5m2x16 = Vector<Float8E5M2, 16>;
using i32x1 = Vector<std::int32_t, 1>;
using u32x1 = Vector<std::uint32_t, 1>;
using i64x1 = Vector<std::int64_t, 1>;
using u64x1 = Vector<std::uint64_t, 1>;

inline namespace MSCCLPP_BACKEND {

using arch::hasMultimem;
using arch::hasMultimemFloat8;
using arch::multimemFence;

// V: a Vector, or an element that can be alone.
template <Order O, Scope S, class Op = Sum, class Acc = void, class V>
MSCCLPP_DEVICE V multimemLoadReduce(V const* address) {
  using T = typename detail::MultimemValue<V>::Element;
  constexpr unsigned count = detail::MultimemValue<V>::count;
  static_assert(O == Order::relaxed || O == Order::acquire, "a multicast load is relaxed or acquire");
  static_assert(S != Scope::thread, "a multicast load is for others' values: name the scope block, device or system");
  static_assert(multimemMoves<T>, "the switch combines floats, small floats and integers of 32 and 64 bits only");
  static_assert(multimemLoadReduces<T, Op, Acc>,
                "the switch does not combine this type by this operation: Sum is there for all, Min and Max for small "
                "floats and integers; sums of small floats in their own precision, in float, or in Half for FP8");
  static_assert(multimemHasWidth<T, count>,
                "a multicast access moves 4, 8 or 16 bytes, and only one element that is an integer or of 64 bits");
  if constexpr (multimemLoadReduces<T, Op, Acc> && multimemHasWidth<T, count>) {
    using A = std::conditional_t<std::is_void_v<Acc>, std::conditional_t<isSmallFloat<T>, float, T>, Acc>;
    return bitCast<V>(arch::multimemLoadReduce<O, S, Op, A, T, count>(address));
  }
}

template <Order O, Scope S, class V>
MSCCLPP_DEVICE void multimemStore(V* address, std::type_identity_t<V> const& value) {
  using T = typename detail::MultimemValue<V>::Element;
  constexpr unsigned count = detail::MultimemValue<V>::count;
  static_assert(O == Order::relaxed || O == Order::release, "a multicast store is relaxed or release");
  static_assert(S != Scope::thread, "a multicast store is for others: name the scope block, device or system");
  static_assert(multimemMoves<T>, "the switch moves floats, small floats and integers of 32 and 64 bits only");
  static_assert(multimemHasWidth<T, count>,
                "a multicast access moves 4, 8 or 16 bytes, and only one element that is an integer or of 64 bits");
  if constexpr (multimemMoves<T> && multimemHasWidth<T, count>) {
    arch::multimemStore<O, S, T, count>(address, bitCast<Vector<T, count>>(value));
  }
}

template <Order O, Scope S, class Op = Sum, class V>
MSCCLPP_DEVICE void multimemStoreReduce(V* address, std::type_identity_t<V> const& value) {
  using T = typename detail::MultimemValue<V>::Element;
  constexpr unsigned count = detail::MultimemValue<V>::count;
  static_assert(O == Order::relaxed || O == Order::release, "a multicast reduction is relaxed or release");
  static_assert(S != Scope::thread, "a multicast reduction is for others: name the scope block, device or system");
  static_assert(multimemStoreReduces<T, Op>,
                "the switch does not combine this type into memory by this operation: Sum is there for floats, 16-bit "
                "floats and integers, Min and Max for integers");
  static_assert(multimemHasWidth<T, count>,
                "a multicast access moves 4, 8 or 16 bytes, and only one element that is an integer or of 64 bits");
  if constexpr (multimemStoreReduces<T, Op> && multimemHasWidth<T, count>) {
    arch::multimemStoreReduce<O, S, Op, T, count>(address, bitCast<Vector<T, count>>(value));
  }
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
