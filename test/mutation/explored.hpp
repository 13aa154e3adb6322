// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a test body on every rank under many schedules and lets the checker watch: each check must hold in each, and
// nothing may be found.
#pragma once

#include <functional>

#include "check/explore_ranks.hpp"

namespace mscclpp_test {

// `schedules` each with few interruptions, with many, and with threads that stay behind. A first finding is enough.
inline void everySchedule(int ranks, std::function<void(Rank&)> const& body, int schedules = 6) {
  sim::ExploreOptions options{.schedules = schedules, .stopAtFirst = true, .shrink = false};
  auto const explore = [&](sim::Strategy strategy, double preemption) {
    options.strategy = strategy;
    options.preemption = preemption;
    for (auto const& finding : check_test::exploreRanks({.ranks = ranks}, body, options).findings) {
      FAIL_CHECK("checker: ", sim::nameOf(finding.kind), ": ", finding.summary);
    }
  };
  explore(sim::Strategy::random, 0.05);
  explore(sim::Strategy::random, 0.4);
  explore(sim::Strategy::pct, 0);
}

}  // namespace mscclpp_test
