// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a test body on every rank under many schedules and lets the checker watch: each check must hold in each, and
// nothing may be found.
#pragma once

#include <functional>
#include <string>

#include "check/explore_ranks.hpp"

namespace mscclpp_test {

// `schedules` each with few interruptions, with many, and with threads that stay behind. A first finding is enough.
inline void everySchedule(sim::World const& world, std::function<void(Rank&)> const& body, int schedules = 6) {
  sim::ExploreOptions options{.schedules = schedules, .stopAtFirst = true, .shrink = false};
  auto const explore = [&](sim::Strategy strategy, double preemption) {
    options.strategy = strategy;
    options.preemption = preemption;
    for (auto const& finding : check_test::exploreRanks(world, body, options).findings) {
      FAIL_CHECK("checker: ", sim::nameOf(finding.kind), ": ", finding.summary);
    }
  };
  explore(sim::Strategy::random, 0.05);
  explore(sim::Strategy::random, 0.4);
  explore(sim::Strategy::pct, 0);
}

inline void everySchedule(int ranks, std::function<void(Rank&)> const& body, int schedules = 6) {
  everySchedule(sim::World{.ranks = ranks}, body, schedules);
}

// What the host of `rank` is told of its kernel; empty when it ended well.
inline std::string reportOf(Rank& rank) {
  try {
    rank.communicator.synchronize(rank.stream);
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::invalidUsage);
    return error.what();
  }
  return {};
}

// What the simulated machine says when the kernels of `body` wait for what never comes.
inline std::string deadLockOf(int ranks, std::function<void(Rank&)> const& body) {
  try {
    forEachRank(ranks, body);
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::timeout);
    return error.what();
  }
  return {};
}

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace mscclpp_test
