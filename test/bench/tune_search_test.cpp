// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tuner's search, over times that are made up.
#include "plan/tune_search.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

using namespace mscclpp::bench;

namespace {

// Counts what is measured; the own shape of an algorithm counts as 16 blocks of 128 threads.
struct World {
  std::map<std::string, double> base;
  double bestBlocks = 16;
  std::map<std::string, int> brief{};
  int thorough = 0;

  std::optional<double> measure(TuneCandidate const& candidate, bool isThorough) {
    if (!base.contains(candidate.algorithm)) return std::nullopt;
    isThorough ? ++thorough : ++brief[candidate.algorithm];
    double const blocks = candidate.blocks != 0 ? candidate.blocks : 16;
    double const threads = candidate.threads != 0 ? candidate.threads : 128;
    return base[candidate.algorithm] *
           (1 + 0.1 * std::abs(std::log2(blocks / bestBlocks)) + 0.05 * std::abs(std::log2(threads / 128)));
  }
  TuneSearch search() {
    TuneSearch result;
    result.measure = [this](TuneCandidate const& candidate, bool isThorough) { return measure(candidate, isThorough); };
    for (auto const& [name, time] : base) result.algorithms.push_back(name);
    result.blocks = {4, 16, 64};
    result.threads = {64, 128, 256};
    return result;
  }
};

}  // namespace

TEST_CASE("the fastest shape of the fastest algorithm is found, and hopeless ones cost one look") {
  World world{.base = {{"good", 1.0}, {"better", 0.9}, {"hopeless", 5.0}}, .bestBlocks = 64};
  auto const found = world.search().fastest();
  REQUIRE(found.has_value());
  CHECK(found->candidate == TuneCandidate{"better", 64, 128});
  CHECK(found->seconds == doctest::Approx(0.9));
  CHECK(world.brief["hopeless"] == 1);
  CHECK(world.brief["good"] == 1 + 9);
  CHECK(world.thorough <= 4 + 2);
}

TEST_CASE("the library's shape is kept where another one gains nothing") {
  World world{.base = {{"only", 2.0}}};
  CHECK(world.search().fastest()->candidate == TuneCandidate{"only", 0, 0});
}

TEST_CASE("what an earlier run found takes part") {
  World world{.base = {{"only", 2.0}}, .bestBlocks = 40};
  auto search = world.search();
  search.known = TuneCandidate{"only", 40, 128};
  CHECK(search.fastest()->candidate == *search.known);
  // Not measured twice where the grid holds it too.
  World again{.base = {{"only", 2.0}}};
  auto second = again.search();
  second.known = TuneCandidate{"only", 4, 64};
  (void)second.fastest();
  CHECK(again.brief["only"] == 1 + 9);
}

TEST_CASE("nothing is found where nothing can be measured") {
  World world{};
  auto search = world.search();
  CHECK(!search.fastest().has_value());
  search.algorithms = {"not there"};
  CHECK(!search.fastest().has_value());
}
