// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// support/world.hpp's forEachRank under many schedules: host code that is given a communicator and a stream.
#pragma once

#include <functional>

#include "mscclpp/sim/explore.hpp"
#include "support/world.hpp"

namespace check_test {

using namespace mscclpp;
using mscclpp_test::Rank;

// Explores host code that is given a communicator and a stream.
inline sim::ExploreResult exploreRanks(sim::World const& world, std::function<void(Rank&)> const& body,
                                       sim::ExploreOptions const& options) {
  return sim::explore(
      world,
      [&](sim::RankContext& context) {
        Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
        Stream stream(communicator.device());
        Rank rank{communicator, stream, context.rank(), context.ranks(), communicator.device()};
        body(rank);
      },
      options);
}

}  // namespace check_test
