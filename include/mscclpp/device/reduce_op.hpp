// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reduction operations. Each combines two accumulators with `op(a, b)` and turns the total of `count` contributions
// into the result with `finish`. A user's own operation is any type with these two members.
//
// Integers wrap; Avg of integers truncates toward zero; Min and Max of floats give NaN when any contribution is NaN.
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

#include "mscclpp/base/config.hpp"

namespace mscclpp {

// What collectives ask of an operation on accumulators of type A.
template <class Op, class A>
concept ReduceOperation = requires(Op const op, A a, A b, int count) {
  { op(a, b) } -> std::same_as<A>;
  { op.finish(a, count) } -> std::same_as<A>;
};

// What the operations here compute with; the small floats are widened first.
template <class A>
concept Arithmetic = std::is_arithmetic_v<A>;

namespace detail {

// Signed overflow is undefined in C++ and wraps on every machine: compute unsigned.
template <class A>
using WrappingOf =
    typename std::conditional_t<std::is_integral_v<A>, std::make_unsigned<A>, std::type_identity<A>>::type;

}  // namespace detail

// Sum and Prod of signed integers wrap as those of unsigned ones do.
struct Sum {
  static constexpr std::string_view name = "sum";
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A operator()(A a, A b) const {
    using W = detail::WrappingOf<A>;
    return static_cast<A>(static_cast<W>(a) + static_cast<W>(b));
  }
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A finish(A total, int) const {
    return total;
  }
};

struct Prod {
  static constexpr std::string_view name = "prod";
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A operator()(A a, A b) const {
    using W = detail::WrappingOf<A>;
    return static_cast<A>(static_cast<W>(a) * static_cast<W>(b));
  }
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A finish(A total, int) const {
    return total;
  }
};

struct Min {
  static constexpr std::string_view name = "min";
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A operator()(A a, A b) const {
    return (b < a || b != b) ? b : a;
  }
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A finish(A total, int) const {
    return total;
  }
};

struct Max {
  static constexpr std::string_view name = "max";
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A operator()(A a, A b) const {
    return (a < b || b != b) ? b : a;
  }
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A finish(A total, int) const {
    return total;
  }
};

struct Avg {
  static constexpr std::string_view name = "avg";
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A operator()(A a, A b) const {
    return Sum{}(a, b);
  }
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A finish(A total, int count) const {
    return static_cast<A>(total / static_cast<A>(count));
  }
};

}  // namespace mscclpp
