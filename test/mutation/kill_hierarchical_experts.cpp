// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to experts on several nodes and back, under the checker.
#include "explored.hpp"
#include "support/experts.hpp"

using namespace mscclpp_test;

namespace {

template <class T = float, class W = T>
void explored(ExpertsCase const& test) {
  everySchedule(
      {.ranks = test.ranks, .machine = {.devicesPerNode = test.ranks / test.nodes}},
      [&](Rank& rank) { runExperts<T, W, OverNodes<T, W>>(rank, test); }, 2);
}

layout::ExpertLimits limits(std::uint32_t experts, std::uint32_t topK, std::uint32_t tokens, std::uint32_t hidden) {
  return {.experts = experts, .topK = topK, .tokens = tokens, .hidden = hidden, .elementBytes = 4, .blocks = 3};
}

}  // namespace

TEST_CASE("a rail, and nodes of two rails") {
  explored({.ranks = 2, .nodes = 2, .limits = limits(5, 3, 6, 20), .layers = 3});
  explored({.ranks = 4, .nodes = 2, .limits = limits(7, 3, 6, 20), .byToken = true});
  explored({.ranks = 3, .nodes = 3, .limits = limits(7, 4, 5, 12), .repeats = 2});
}

TEST_CASE("quantised, in pieces, a part of each") {
  ExpertsCase test{.ranks = 4, .nodes = 2, .limits = limits(9, 3, 4, 300), .layers = 2};
  explored<float, Float8E4M3>(test);
  explored<BFloat16, std::int8_t>(test);
  test.limits.hidden = 2100;
  test.limits.partOfEach = true;
  explored<float, Float8E4M3>(test);
}

TEST_CASE("more tokens than a warp looks at, to few experts, to nobody") {
  ExpertsCase test{.ranks = 2, .nodes = 2, .limits = limits(8, 1, 70, 2), .layers = 2};
  explored(test);
  test.crowd = Crowd::nobody;
  explored(test);
}
