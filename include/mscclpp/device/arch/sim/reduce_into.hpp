// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Additions to memory, by bulk copies and by vectors, on the simulated machine. Twin of arch/cuda/reduce_into.hpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/sim/backend/bulk_copy.hpp"
#include "mscclpp/sim/backend/ordered_access.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

// Elements that share a word arrive together; their sums are each its own.
template <class T>
inline constexpr unsigned sumUnit = sizeof(T) < 4 ? 4 : sizeof(T);

template <class T>
std::uint64_t addUnit(std::uint64_t found, std::uint64_t operand) {
  Vector<T, sumUnit<T> / sizeof(T)> a, b;
  std::memcpy(&a, &found, sizeof a);
  std::memcpy(&b, &operand, sizeof b);
  auto const sum = map(a, b, [](T x, T y) {
    using A = DefaultAccumulator<T>;
    return convertNumber<T>(Sum{}(convertNumber<A>(x), convertNumber<A>(y)));
  });
  std::uint64_t result = 0;
  std::memcpy(&result, &sum, sizeof sum);
  return result;
}

template <class T>
MSCCLPP_DEVICE void bulkReduceAdd(T* dst, T const* src, std::uint32_t bytes) {
  sim::bulkReduce(dst, src, bytes, sumUnit<T>, addUnit<T>);
}

template <Scope S, class T, unsigned N>
MSCCLPP_DEVICE void reduceAddVector(T* address, Vector<T, N> const& value) {
  sim::combineWords(address, &value, sizeof value, sumUnit<T>, S, addUnit<T>);
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
