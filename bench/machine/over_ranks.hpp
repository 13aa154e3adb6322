// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every rank has, put together. All ranks call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "mscclpp/host/communicator.hpp"

namespace mscclpp::bench {

template <class Message>
std::vector<Message> gather(Bootstrap& bootstrap, Message const& mine) {
  std::vector<Message> all(static_cast<std::size_t>(bootstrap.getNranks()), mine);
  bootstrap.allGather(all.data(), sizeof(Message));
  return all;
}
inline std::vector<double> ofAllRanks(Communicator const& communicator, double own) {
  return gather(*communicator.bootstrap(), own);
}
inline double largest(Communicator const& communicator, double own) {
  return std::ranges::max(ofAllRanks(communicator, own));
}
inline std::size_t total(Communicator const& communicator, std::size_t own) {
  auto const all = ofAllRanks(communicator, static_cast<double>(own));
  return static_cast<std::size_t>(std::accumulate(all.begin(), all.end(), 0.0));
}

}  // namespace mscclpp::bench
