// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to experts on several nodes and back: every element of what arrives, where, and of the sums, beside the same
// on the host. GPUs are one node.
#include "mscclpp/algorithms/experts/hierarchical_dispatch.hpp"

#include "support/experts.hpp"

using namespace mscclpp_test;

namespace {

template <class T, class W = T>
void checkOverNodes(ExpertsCase test) {
#if defined(__CUDACC__)
  test.nodes = 1;
#endif
  checkExperts<T, W, OverNodes<T, W>>(test);
}

struct Shape {
  int nodes, rails;
};
constexpr Shape everyShape[] = {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {2, 4}};

}  // namespace

TEST_CASE("tokens of every type on every shape of nodes") {
  for (auto const& shape : everyShape) {
    CAPTURE(shape.nodes);
    CAPTURE(shape.rails);
    ExpertsCase test{.ranks = shape.nodes * shape.rails, .nodes = shape.nodes, .alignment = 4};
    test.limits = {.experts = 13, .topK = 4, .tokens = 9, .hidden = 150, .elementBytes = 4, .blocks = 3};
    checkOverNodes<float>(test);
    checkOverNodes<BFloat16>(test);
    checkOverNodes<BFloat16, Float8E4M3>(test);
    checkOverNodes<Half, std::int8_t>(test);
  }
}

TEST_CASE("rows of many pieces, whole and not, and of a single column") {
  ExpertsCase test{.ranks = 4, .nodes = 2, .layers = 1};
  for (std::uint32_t const hidden : {1u, 128u, 1030u, 2304u}) {
    CAPTURE(hidden);
    test.limits = {.experts = 9, .topK = 3, .tokens = 5, .hidden = hidden, .elementBytes = 4, .blocks = 2};
    checkOverNodes<float>(test);
    checkOverNodes<float, Float8E4M3>(test);
    checkOverNodes<BFloat16, std::int8_t>(test);
  }
}

TEST_CASE("orders of rows, dropped rows, sums without weights, a part of each expert") {
  ExpertsCase test{.ranks = 4, .nodes = 2};
  test.limits = {.experts = 10, .topK = 4, .tokens = 10, .hidden = 40, .elementBytes = 4, .blocks = 4};
  for (bool const each : {false, true}) {
    test.limits.partOfEach = each;
    test.weights = each ? ExpertWeights::none : ExpertWeights::asRouted;
    test.rowsOfExpert = 3;
    checkOverNodes<float>(test);
    test.rowsOfExpert = 0;
    test.room = 11;
    checkOverNodes<float, Float8E4M3>(test);
    test.byToken = true;
    test.weights = ExpertWeights::none;
    checkOverNodes<float>(test);
    test.room = 0;
    checkOverNodes<BFloat16, Float8E4M3>(test);
    test.byToken = false;
  }
  test.weights = ExpertWeights::asRouted;
  checkOverNodes<BFloat16>(test);
}

TEST_CASE("skewed routings, one expert's, nobody's; more tokens than a warp looks at, in many rounds") {
  for (auto const crowd : {Crowd::skewed, Crowd::oneExpert, Crowd::nobody}) {
    ExpertsCase test{.ranks = 4, .nodes = 2, .crowd = crowd, .layers = 3, .repeats = 2};
    test.limits = {.experts = 12, .topK = 2, .tokens = 70, .hidden = 20, .elementBytes = 4, .blocks = 5};
    checkOverNodes<float>(test);
  }
}
