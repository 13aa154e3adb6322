// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many bytes the copy engines' collectives copy at a time: for what starts the copies, and for the cost model.
#pragma once

#include <algorithm>
#include <cstddef>

namespace mscclpp::collectives_impl {

// Shorter ones take little less time, longer ones only keep the rank waiting that goes on with them.
constexpr std::size_t shortestCopy = std::size_t{4} << 20;
constexpr std::size_t longestCopy = std::size_t{32} << 20;

// Of a share that is reduced: several, so that little is left to reduce when the last has come. A multiple of 128.
constexpr std::size_t reducedChunk(std::size_t shareBytes) {
  return std::clamp(shareBytes / 8 / 128 * 128, shortestCopy, longestCopy);
}

// Of a message that goes from rank to rank: many for each rank on the way. Between two ranks nobody hands anything on.
constexpr std::size_t relayedChunk(std::size_t bytes, std::size_t ranks) {
  return ranks <= 2 ? bytes : std::clamp(bytes / (32 * (ranks - 2)), shortestCopy, longestCopy);
}

}  // namespace mscclpp::collectives_impl
