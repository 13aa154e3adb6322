// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread of a litmus test as host code: its std::atomic_refs are, for the checker, accesses in the scope of the
// system.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "litmus/axioms.hpp"
#include "litmus/generate.hpp"
#include "litmus/machine.hpp"
#include "litmus/table/all.hpp"
#include "litmus/text.hpp"

using namespace litmus;
using mscclpp::sim::Strategy;

namespace {

// Whether all schedules show just what the axioms allow to a machine that runs in order.
void checkAll(Program const& program, Program const& judged, Host host) {
  Judgement const judgement = judge(judged);
  Observed const observed = observe(program, {.strategy = Strategy::exhaustive, .schedules = 100'000}, host);
  CHECK(observed.complete);
  CHECK(observed.other == "");
  CHECK(observed.racy == judgement.racyInOrder);
  CHECK(std::ranges::includes(judgement.allowed, observed.outcomes));
  if (!judgement.racy) CHECK((observed.outcomes == judgement.inOrder));
}

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
      checkAll(*program, *judged, host);
    }
  }
  return programs;
}

bool hasWeak(Program const& program) {
  return std::ranges::any_of(program.threads, [](Thread const& thread) {
    return std::ranges::any_of(thread.code, [](Instruction const& i) {
      return i.operation != Operation::fence && i.strength == Strength::weak;
    });
  });
}

// The program with its n-th ordered instruction relaxed, or of the narrowest scope, which those of the host have not;
// nothing where there are not so many.
std::optional<Program> weakened(Program const& program, int host, int n, bool scope) {
  Program made{{}, program.initial};
  for (auto const& thread : program.threads) {
    Thread copy{thread.place, {}};
    for (auto instruction : thread.code) {
      bool const isHost = &thread == &program.threads[static_cast<std::size_t>(host)];
      bool const fits = scope ? !isHost && instruction.strength != Strength::weak && instruction.scope != cta
                              : instruction.operation != Operation::fence && instruction.strength > rlx;
      if (fits && n-- == 0) {
        if (scope) {
          instruction.scope = cta;
        } else {
          instruction.strength = rlx;
        }
      }
      copy.code.add(instruction);
    }
    made.threads.add(copy);
  }
  return n < 0 ? std::optional(made) : std::nullopt;
}

}  // namespace

TEST_CASE("rank code with the orders that the tests name") { CHECK(runAll({.kind = Host::Kind::rank}) > 300); }

TEST_CASE("rank code with std::atomic's default order") {
  CHECK(runAll({.kind = Host::Kind::rank, .sequential = true}) > 250);
}

TEST_CASE("another thread of the rank's process") { CHECK(runAll({.kind = Host::Kind::background}) > 300); }

TEST_CASE("random programs of host and device code: the right ones are silent, weakened ones are found") {
  constexpr int wanted = 200;
  Generator generator(5);
  int silent = 0;
  int wrong = 0;
  int found = 0;
  for (int i = 0; silent < wanted || wrong < wanted; ++i) {
    auto const drawn = generator.next();
    Host const host{.kind = i % 2 == 0 ? Host::Kind::rank : Host::Kind::background,
                    .thread = i % static_cast<int>(drawn.threads.size())};
    auto const program = asHost(drawn, host.thread, false);
    if (!program || !hasWeak(*program) || judge(*program).racy) continue;
    INFO("program ", i, ":\n", toText(*program));
    if (silent++ < wanted) {
      Observed const observed = observe(*program, {.schedules = 100}, host);
      CHECK(observed.other == "");
      CHECK_FALSE(observed.racy);
      checkAll(*program, *program, host);
    }
    for (int n = 0; wrong < wanted; ++n) {
      auto const order = weakened(*program, host.thread, n, false);
      auto const scope = weakened(*program, host.thread, n, true);
      if (!order && !scope) break;
      for (auto const& change : {order, scope}) {
        if (!change || wrong == wanted || !judge(*change).racyInOrder) continue;
        ++wrong;
        found += observe(*change, {.schedules = 1000, .preemption = 0.3}, host).racy;
      }
    }
  }
  MESSAGE(found, " of ", wrong, " wrong programs were found");
  CHECK(found * 100 >= wrong * 95);
}
