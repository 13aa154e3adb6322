// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parameters of a kernel type, as one value that is copied to the device: the same bytes wherever it is compiled.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "mscclpp/base/config.hpp"

namespace mscclpp {

namespace detail {

template <class F>
struct CallSignature : CallSignature<decltype(&F::operator())> {};
template <class F, class... P>
struct CallSignature<void (F::*)(P...) const> {
  using Parameters = std::tuple<std::remove_cvref_t<P>...>;
};
template <class... P>
struct CallSignature<void (*)(P...)> {
  using Parameters = std::tuple<std::remove_cv_t<P>...>;
};

}  // namespace detail

inline namespace MSCCLPP_BACKEND {
namespace arch {

// The arguments of one launch as one kernel parameter. (A pack of `const` parameters would need none of this, but g++
// cannot name such a function template specialisation.) of() makes each where it will lie: handles have large tables.
template <class... P>
struct ArgumentList {
  static ArgumentList of() { return {}; }
  template <class Kernel, class... Before>
  MSCCLPP_DEVICE void call(Kernel const& kernel, Before const&... before) const {
    kernel(before...);
  }
};
template <class First, class... Rest>
struct ArgumentList<First, Rest...> {
  First first;
  ArgumentList<Rest...> rest;

  template <class A, class... More>
  static ArgumentList of(A&& a, More&&... more) {
    return {static_cast<First>(std::forward<A>(a)), ArgumentList<Rest...>::of(std::forward<More>(more)...)};
  }
  template <class Kernel, class... Before>
  MSCCLPP_DEVICE void call(Kernel const& kernel, Before const&... before) const {
    rest.call(kernel, before..., first);
  }
};
template <class Tuple>
struct ArgumentsOf;
template <class... P>
struct ArgumentsOf<std::tuple<P...>> : std::type_identity<ArgumentList<P...>> {};

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
