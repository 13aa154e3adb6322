// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to experts on several nodes and back: nothing to find, whatever the schedule.
#include <doctest/doctest.h>

#include "check/fused/experts_cases.hpp"
#include "check/sweep.hpp"

using namespace check_test;
using namespace mscclpp_test;

TEST_CASE("tokens to experts on several nodes and back") {
  struct Shape {
    int nodes, rails;
  };
  for (auto const& shape : {Shape{2, 1}, Shape{2, 2}, Shape{3, 1}, Shape{2, 4}}) {
    int const ranks = shape.nodes * shape.rails;
    auto const body = [=](Rank& rank, std::uint64_t variant) {
      auto test = caseOf(ranks, variant);
      test.nodes = shape.nodes;
      test.movers = 0;
      if (variant % 2 == 0) return runExperts<float, float, OverNodes<float, float>>(rank, test);
      test.limits.hidden += 120 * static_cast<std::uint32_t>(variant / 2 % 2);
      runExperts<float, Float8E4M3, OverNodes<float, Float8E4M3>>(rank, test);
    };
    sweep(ranks, body, {.devicesPerNode = shape.rails});
  }
}
