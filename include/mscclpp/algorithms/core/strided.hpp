// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A buffer as a tensor without gaps, one dimension of which counts ranks: parts of an all-to-all that lie strewn, so
// that the exchange is a permutation of dimensions as well.
//
//   Strided{View{x, n}, {batch, tokens, byRank, heads, width}}       x[b][t][rank][h][w]
//   Strided{y, {batch, byRank, tokens, heads, width}}                y, a SymmetricView: y[b][rank][t][h][w]
//
// Of the others only the products before and behind the ranks' matter; those of input and output fit together where one
// of the two before them divides the other.
#pragma once

#include <cstddef>

#include "mscclpp/device/symmetric_view.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {

// Stands for the number of ranks among the extents of a Strided.
inline constexpr std::size_t byRank = ~std::size_t{0};

// `V`: View or SymmetricView.
template <class V>
struct Strided {
  V view;
  std::size_t before = 1;  // elements of the dimensions before the ranks'
  std::size_t behind = 1;

  template <std::size_t N>
  MSCCLPP_HOST_DEVICE constexpr Strided(V const& of, std::size_t const (&extents)[N]) : view(of) {
    bool ranksCame = false;
    for (std::size_t i = 0; i < N; ++i) {
      if (extents[i] == byRank) {
        ranksCame = true;
      } else {
        (ranksCame ? behind : before) *= extents[i];
      }
    }
  }
};
template <class V, std::size_t N>
Strided(V const&, std::size_t const (&)[N]) -> Strided<V>;

inline namespace MSCCLPP_BACKEND {

// One tensor's way, where several go in one exchange.
template <class In, class T>
struct Permuted {
  Strided<View<In>> in;
  Strided<SymmetricView<T>> out;
};
template <class In, class T>
Permuted(Strided<View<In>> const&, Strided<SymmetricView<T>> const&) -> Permuted<In, T>;

namespace impl {

// What goes to one peer: `outer` * `inner` runs of `run` elements, each where the two numbers and the rank say.
struct StridedRuns {
  std::size_t outer;
  std::size_t inner;
  std::size_t run;
  bool inFirst;  // the ranks' dimension stands ahead of the inner one in the input, and behind it in the output

  MSCCLPP_HOST_DEVICE static constexpr StridedRuns make(std::size_t inBefore, std::size_t inBehind,
                                                        std::size_t outBefore, std::size_t outBehind) {
    if (inBefore >= outBefore) return {outBefore, inBefore / outBefore, inBehind, false};
    return {inBefore, outBefore / inBefore, outBehind, true};
  }
  // In runs; of `ranks` the run of `rank`. `I`: as narrow as the numbers allow, since it is divided.
  template <class I>
  MSCCLPP_HOST_DEVICE constexpr std::size_t place(bool first, I number, std::size_t rank, std::size_t ranks) const {
    if (!first) return number * ranks + rank;
    auto const before = number / static_cast<I>(inner);
    return (before * ranks + rank) * inner + (number - before * inner);
  }
};

}  // namespace impl

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
