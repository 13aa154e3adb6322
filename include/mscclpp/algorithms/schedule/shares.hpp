// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A buffer dealt out to ranks in shares that begin at multiples of 128 bytes, the last ones shorter or empty.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/partition.hpp"

namespace mscclpp {

// What one rank has of the elements.
struct Share {
  std::uint64_t first;  // element
  std::uint64_t count;
};

// Of `count` elements of T, whose size divides 128.
template <class T>
MSCCLPP_HOST_DEVICE constexpr Share shareOf(std::uint64_t count, unsigned ranks, unsigned rank) {
  constexpr std::uint64_t line = 128 / sizeof(T);
  auto const each = shareSlots(count, ranks, static_cast<std::uint32_t>(line));
  auto const first = minimum<std::uint64_t>(each * rank, count);
  return {first, minimum<std::uint64_t>(each, count - first)};
}

// The same for all ranks but the root, which has nothing to do where there are others.
template <class T>
MSCCLPP_HOST_DEVICE constexpr Share shareBesideRoot(std::uint64_t count, int ranks, int rank, int root) {
  auto const others = ranks > 1 ? static_cast<unsigned>(ranks - 1) : 1u;
  auto const place = static_cast<unsigned>((rank - root - 1 + ranks) % ranks);
  return place < others ? shareOf<T>(count, others, place) : Share{0, 0};
}

}  // namespace mscclpp
