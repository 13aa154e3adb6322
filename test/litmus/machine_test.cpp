// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated machine gives every verdict of the table.
#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>

#include "litmus/axioms.hpp"
#include "litmus/machine.hpp"
#include "litmus/table/all.hpp"

using namespace litmus;
using mscclpp::sim::Strategy;

namespace {

bool shown(Litmus const& test, Observed const& observed) {
  return std::ranges::any_of(observed.outcomes, [&](Outcome const& o) { return test.shownBy(o); });
}

}  // namespace

TEST_CASE("all schedules of a litmus test show what PTX allows, and no more") {
  for (Litmus const& test : allTests()) {
    CAPTURE(test.name);
    Observed const observed = observe(test.program, {.strategy = Strategy::exhaustive, .schedules = 100'000});
    CAPTURE(observed.schedules);
    CHECK(observed.complete);
    CHECK(observed.other == "");
    CHECK(observed.racy == (test.races == racy));
    if (test.races == racy) {
      CHECK((test.verdict != forbidden || !shown(test, observed)));
    } else {
      CHECK(shown(test, observed) == (test.verdict == allowed));
      CHECK((observed.outcomes == judge(test.program).inOrder));
    }
  }
}

TEST_CASE("random schedules of a litmus test show nothing that PTX forbids") {
  for (Litmus const& test : allTests()) {
    CAPTURE(test.name);
    int const schedules = test.verdict == forbidden ? 2000 : 300;
    Observed const observed = observe(test.program, {.schedules = schedules, .preemption = 0.3});
    auto const allowedOnes = judge(test.program).allowed;
    CHECK(observed.other == "");
    CHECK((test.verdict == allowed || !shown(test, observed)));
    CHECK(std::ranges::includes(allowedOnes, observed.outcomes));
    CHECK((test.races == racy || !observed.racy));
  }
}
