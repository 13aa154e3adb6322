// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A buffer dealt out to ranks in shares that begin at multiples of 128 bytes, the last ones shorter or empty.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/partition.hpp"

namespace mscclpp {

struct Share {
  std::uint64_t first;  // element
  std::uint64_t count;
};

template <class T>
MSCCLPP_HOST_DEVICE constexpr Share shareOf(std::uint64_t count, unsigned ranks, unsigned rank) {
  constexpr std::uint64_t line = 128 / sizeof(T);
  auto const each = shareSlots(count, ranks, static_cast<std::uint32_t>(line));
  auto const first = minimum<std::uint64_t>(each * rank, count);
  return {first, minimum<std::uint64_t>(each, count - first)};
}

}  // namespace mscclpp
