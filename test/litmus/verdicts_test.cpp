// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The axioms give every verdict of the table.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "litmus/axioms.hpp"
#include "litmus/table/all.hpp"

using namespace litmus;

namespace {

bool shows(Litmus const& test, std::set<Outcome> const& outcomes) {
  return std::any_of(outcomes.begin(), outcomes.end(), [&](Outcome const& o) { return test.shownBy(o); });
}

}  // namespace

TEST_CASE("the axioms agree with every verdict of the table") {
  for (Litmus const& test : allTests()) {
    CAPTURE(test.name);
    Judgement const judgement = judge(test.program);
    CHECK_FALSE(judgement.allowed.empty());
    CHECK(shows(test, judgement.allowed) == (test.verdict != forbidden));
    CHECK(shows(test, judgement.inOrder) == (test.verdict == allowed));
    CHECK(judgement.racy == (test.races == racy));
    CHECK(judgement.racyInOrder == judgement.racy);
  }
}

TEST_CASE("the table holds what it says it holds") {
  CHECK(listedTests().size() >= 100);
  std::set<std::string> names;
  for (Litmus const& test : allTests()) names.emplace(test.name);
  CHECK(names.size() == allTests().size());
}
