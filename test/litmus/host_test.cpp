// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread of a litmus test as host code: its std::atomic_refs are, for the checker, accesses in the scope of the
// system.
#include <doctest/doctest.h>

#include <algorithm>

#include "litmus/axioms.hpp"
#include "litmus/machine.hpp"
#include "litmus/table/all.hpp"
#include "litmus/text.hpp"

using namespace litmus;
using mscclpp::sim::Strategy;

namespace {

// Runs each thread of each test of the table as host code; returns how many programs that were.
int runAll(Host host) {
  int programs = 0;
  for (Litmus const& test : allTests()) {
    for (host.thread = 0; host.thread < static_cast<int>(test.program.threads.size()); ++host.thread) {
      auto const program = asHost(test.program, host.thread, false);
      auto const judged = asHost(test.program, host.thread, host.sequential);
      if (!program || !judged) continue;
      ++programs;
      INFO(test.name, " with thread ", host.thread, " on the host:\n", toText(*judged));
      Judgement const judgement = judge(*judged);
      Observed const observed = observe(*program, {.strategy = Strategy::exhaustive, .schedules = 100'000}, host);
      CHECK(observed.complete);
      CHECK(observed.other == "");
      CHECK(observed.racy == judgement.racyInOrder);
      CHECK(std::ranges::includes(judgement.allowed, observed.outcomes));
      if (!judgement.racy) CHECK((observed.outcomes == judgement.inOrder));
    }
  }
  return programs;
}

}  // namespace

TEST_CASE("rank code with the orders that the tests name") { CHECK(runAll({.kind = Host::Kind::rank}) > 300); }

TEST_CASE("rank code with std::atomic's default order") {
  CHECK(runAll({.kind = Host::Kind::rank, .sequential = true}) > 250);
}

TEST_CASE("another thread of the rank's process") { CHECK(runAll({.kind = Host::Kind::background}) > 300); }
