// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Accesses to multicast addresses on the simulated machine. Twin of arch/cuda/multimem.hpp.
//
// Loads combine in rank order, in the accumulator type, and round once; a switch may use another order.
#pragma once

#include <cstring>
#include <type_traits>

#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/sim/backend/multimem.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE constexpr bool hasMultimem() { return true; }
MSCCLPP_DEVICE constexpr bool hasMultimemFloat8() { return true; }

// What arrives whole: an element, or as many of the small ones as a word holds.
template <class T>
inline constexpr unsigned multimemUnit = sizeof(T) < 4 ? 4 : sizeof(T);

// a and b combined in A, which the operations know if it is no small float.
template <class Op, class A>
A multimemCombine(A a, A b) {
  using Wide = std::conditional_t<isSmallFloat<A>, float, A>;
  return convertNumber<A>(Op{}(convertNumber<Wide>(a), convertNumber<Wide>(b)));
}

template <Order O, Scope S, class Op, class Acc, class T, unsigned N>
MSCCLPP_DEVICE Vector<T, N> multimemLoadReduce(void const* address) {
  sim::MulticastValues values;
  sim::multimemLoad(address, N * sizeof(T), multimemUnit<T>, O, S, values);
  Vector<Acc, N> total{};
  for (int rank = 0; rank < values.ranks; ++rank) {
    Vector<T, N> value;
    std::memcpy(&value, values.bytes[rank], sizeof value);
    auto const wide = convert<Acc>(value);
    total = rank == 0 ? wide : map(total, wide, [](Acc a, Acc b) { return multimemCombine<Op>(a, b); });
  }
  return convert<T>(total);
}

template <Order O, Scope S, class T, unsigned N>
MSCCLPP_DEVICE void multimemStore(void* address, Vector<T, N> const& value) {
  sim::multimemStore(address, &value, N * sizeof(T), multimemUnit<T>, O, S);
}

template <Order O, Scope S, class Op, class T, unsigned N>
MSCCLPP_DEVICE void multimemStoreReduce(void* address, Vector<T, N> const& value) {
  sim::multimemUpdate(address, &value, N * sizeof(T), multimemUnit<T>, O, S,
                      [](std::uint64_t found, std::uint64_t operand) {
                        using Unit = Vector<T, multimemUnit<T> / sizeof(T)>;
                        Unit a, b;
                        std::memcpy(&a, &found, sizeof a);
                        std::memcpy(&b, &operand, sizeof b);
                        auto const sum = map(a, b, [](T x, T y) { return multimemCombine<Op>(x, y); });
                        std::uint64_t result = 0;
                        std::memcpy(&result, &sum, sizeof sum);
                        return result;
                      });
}

MSCCLPP_DEVICE void multimemFence() { sim::multimemFence(); }

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
