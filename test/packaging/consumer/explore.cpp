// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Explores by itself, as a project's own test would.
#include "increment.hpp"

#include <mscclpp/sim/explore.hpp>

#include <cstdio>

namespace sim = mscclpp::sim;

int main() {
  auto const explore = [](bool race) {
    return sim::explore({.ranks = 2}, [race](sim::RankContext& rank) { increment(rank.device(), race); },
                        {.schedules = 5});
  };
  auto const correct = explore(false);
  auto const wrong = explore(true);
  std::printf("%s\n%s", sim::toText(correct).c_str(), sim::toText(wrong).c_str());
  bool const raceFound = !wrong.ok() && wrong.findings[0].kind == sim::FindingKind::race;
  return correct.ok() && raceFound ? 0 : 1;
}
