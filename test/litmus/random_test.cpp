// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated machine and the axioms agree on programs that nobody chose.
#include <doctest/doctest.h>

#include <algorithm>

#include "litmus/axioms.hpp"
#include "litmus/generate.hpp"
#include "litmus/machine.hpp"
#include "litmus/text.hpp"

using namespace litmus;
using mscclpp::sim::Strategy;

TEST_CASE("random schedules of random programs show nothing that the axioms forbid") {
  constexpr int programs = 3000;
  Generator generator(1);
  int raceFreePrograms = 0;
  for (int i = 0; i < programs; ++i) {
    Program const program = generator.next();
    INFO("program ", i, ":\n", toText(program));
    Judgement const judgement = judge(program);
    Observed const observed = observe(program, {.schedules = 50, .preemption = 0.3});
    CHECK(observed.other == "");
    CHECK(std::ranges::includes(judgement.allowed, observed.outcomes));
    CHECK((judgement.racy || !observed.racy));
    raceFreePrograms += !judgement.racy;
  }
  CHECK(raceFreePrograms > programs / 4);
  CHECK(raceFreePrograms < programs * 3 / 4);
}

TEST_CASE("all schedules of random programs show just what the axioms allow to a machine that runs in order") {
  Generator generator(2);
  for (int i = 0; i < 300; ++i) {
    Program const program = generator.next();
    INFO("program ", i, ":\n", toText(program));
    Judgement const judgement = judge(program);
    Observed const observed = observe(program, {.strategy = Strategy::exhaustive, .schedules = 100'000});
    CHECK(observed.complete);
    CHECK(observed.racy == judgement.racyInOrder);
    CHECK(std::ranges::includes(judgement.allowed, observed.outcomes));
    if (!judgement.racy) CHECK((observed.outcomes == judgement.inOrder));
  }
}
