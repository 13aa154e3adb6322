// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a buffer is made of one part per rank: all of one size, or each of its own.
//
//   EqualParts{n}                            n elements each, one after the other
//   VariableParts{counts, offsets, largest}  by rank, in elements; parts do not overlap. The arrays stay as they are
//                                            while the collective runs, and may come from the kernel ahead. `largest`
//                                            is no less than any part, and the same on every rank.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {

struct EqualParts {
  std::size_t each;

  static constexpr bool equal = true;
  MSCCLPP_HOST_DEVICE constexpr std::size_t count(int) const { return each; }
  MSCCLPP_HOST_DEVICE constexpr std::size_t offset(int rank) const { return static_cast<std::size_t>(rank) * each; }
  MSCCLPP_HOST_DEVICE constexpr std::size_t largest() const { return each; }
};

struct VariableParts {
  std::size_t const* counts;
  std::size_t const* offsets;
  std::size_t largestCount;

  static constexpr bool equal = false;
  MSCCLPP_HOST_DEVICE constexpr std::size_t count(int rank) const { return counts[rank]; }
  MSCCLPP_HOST_DEVICE constexpr std::size_t offset(int rank) const { return offsets[rank]; }
  MSCCLPP_HOST_DEVICE constexpr std::size_t largest() const { return largestCount; }
};

// count(rank), offset(rank): elements of a rank's part, and the element at which it begins. largest(): no part has
// more. `equal`: all have one count, which is known without a look into memory.
template <class P>
concept Parts = requires(P const& parts, int rank) {
  { P::equal } -> std::convertible_to<bool>;
  { parts.count(rank) } -> std::same_as<std::size_t>;
  { parts.offset(rank) } -> std::same_as<std::size_t>;
  { parts.largest() } -> std::same_as<std::size_t>;
};
static_assert(Parts<EqualParts> && Parts<VariableParts>);

// The part of `rank` in the buffer that begins at `data`.
template <class T, Parts P>
MSCCLPP_HOST_DEVICE constexpr View<T> partOf(T* data, P const& parts, int rank) {
  return {data + parts.offset(rank), parts.count(rank)};
}

// The same of what a rank sends. Parts may lie behind what `source` itself counts.
template <ElementSource S, Parts P>
MSCCLPP_HOST_DEVICE constexpr S partOf(S const& source, P const& parts, int rank) {
  return source.part(parts.offset(rank), parts.count(rank));
}

}  // namespace mscclpp
