// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tokens to experts and back, under the checker: packed, padded, dropped, quantised, multiplied as they come.
#include "explored.hpp"
#include "support/experts.hpp"

using namespace mscclpp_test;

namespace {

template <class W = float>
void explored(ExpertsCase test) {
  for (auto const transport : {layout::ExpertTransport::memory, layout::ExpertTransport::packets}) {
    if (test.failed >= 0 && transport == layout::ExpertTransport::memory) continue;
    test.limits.transport = transport;
    everySchedule(
        test.ranks, [&](Rank& rank) { runExperts<float, W>(rank, test); }, 2);
  }
}

layout::ExpertLimits limits(std::uint32_t experts, std::uint32_t topK, std::uint32_t tokens, std::uint32_t hidden) {
  return {.experts = experts, .topK = topK, .tokens = tokens, .hidden = hidden, .elementBytes = 4, .blocks = 3};
}

}  // namespace

TEST_CASE("to experts and back") {
  ExpertsCase test{.ranks = 3, .limits = limits(7, 3, 9, 20)};
  explored(test);
  test.overlap = true;
  test.alignment = 4;
  explored(test);
  test.limits.partOfEach = true;
  explored(test);
  test.movers = 2;
  explored(test);
}

TEST_CASE("a row for each token, and sums without weights") {
  ExpertsCase test{.ranks = 3, .limits = limits(7, 3, 9, 20), .byToken = true};
  explored(test);
  explored<Float8E4M3>(test);
  test.room = 8;
  explored(test);
  test.room = 0;
  test.limits.partOfEach = true;
  explored(test);
  test.byToken = false;
  test.weights = ExpertWeights::none;
  explored(test);
  test.limits.partOfEach = false;
  explored(test);
}

TEST_CASE("without a rank that has failed") {
  ExpertsCase test{.ranks = 3, .limits = limits(7, 3, 9, 20), .layers = 3, .failed = 1, .failedLayer = 1};
  explored(test);
  test.failsBetween = true;
  test.limits.partOfEach = true;
  explored(test);
}

TEST_CASE("twice in turn, and as many experts as a token can have") {
  ExpertsCase test{.ranks = 2, .limits = limits(20, 16, 3, 6), .layers = 1, .repeats = 2};
  explored(test);
  test.limits.partOfEach = true;
  explored(test);
}

TEST_CASE("where there is no room") {
  ExpertsCase test{.ranks = 2, .limits = limits(4, 2, 6, 10), .rowsOfExpert = 3};
  explored(test);
  test.rowsOfExpert = 0;
  test.room = 5;
  explored(test);
  test.limits.partOfEach = true;
  explored(test);
}

TEST_CASE("quantised, in pieces") {
  explored<Float8E4M3>({.ranks = 2, .limits = limits(4, 2, 3, 2100)});
  explored<std::int8_t>({.ranks = 2, .limits = limits(4, 2, 3, 130)});
}

TEST_CASE("more tokens than a block takes at a time, all for one expert, for nobody, on one rank") {
  ExpertsCase test{.ranks = 2, .limits = limits(6, 2, 80, 2), .layers = 1};
  explored(test);
  test.limits.tokens = 5;
  test.crowd = Crowd::oneExpert;
  explored(test);
  test.crowd = Crowd::nobody;
  explored(test);
  test.crowd = Crowd::even;
  test.ranks = 1;
  explored(test);
}
