// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A figure of every rank, put together. All ranks call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "mscclpp/host/communicator.hpp"

namespace mscclpp::bench {

inline std::vector<double> ofAllRanks(Communicator const& communicator, double own) {
  std::vector<double> all(static_cast<std::size_t>(communicator.size()));
  all[static_cast<std::size_t>(communicator.rank())] = own;
  communicator.bootstrap()->allGather(all.data(), sizeof own);
  return all;
}
inline double largest(Communicator const& communicator, double own) {
  return std::ranges::max(ofAllRanks(communicator, own));
}
inline std::size_t total(Communicator const& communicator, std::size_t own) {
  auto const all = ofAllRanks(communicator, static_cast<double>(own));
  return static_cast<std::size_t>(std::accumulate(all.begin(), all.end(), 0.0));
}

}  // namespace mscclpp::bench
