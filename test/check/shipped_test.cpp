// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sweep: nothing that the library ships gives a finding, whatever the schedule. MSCCLPP_CHECK_SCHEDULES is the
// number of schedules of each program and rank count, each with another shape of it; 1000 for the long run.
#include "check/shipped.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <type_traits>

#include "check/sweep.hpp"

using namespace check_test;

TEST_CASE_TEMPLATE_DEFINE("all-reduce", A, everyAllReduce) {
  constexpr auto algorithm = A::value;
  CAPTURE(name(algorithm));
  for (int ranks : {2, 3, 5, 8}) {
    sweep(ranks, [](Rank& rank, std::uint64_t variant) {
      allReduceCalls<AllReduceOf<algorithm, Sum>, BFloat16>(rank, callSequence(variant));
    });
  }
  sweep(4, [](Rank& rank, std::uint64_t variant) {
    allReduceCalls<AllReduceOf<algorithm, Sum, 4>, float>(rank, callSequence(100 + variant));
  });
}
template <AllReduceAlgorithm A>
using Algorithm = std::integral_constant<AllReduceAlgorithm, A>;
TEST_CASE_TEMPLATE_INVOKE(everyAllReduce, Algorithm<AllReduceAlgorithm::oneShotLL8>,
                          Algorithm<AllReduceAlgorithm::oneShotLL16>, Algorithm<AllReduceAlgorithm::oneShotLL128>,
                          Algorithm<AllReduceAlgorithm::oneShotMemory>, Algorithm<AllReduceAlgorithm::twoShotLL8>,
                          Algorithm<AllReduceAlgorithm::twoShotLL16>, Algorithm<AllReduceAlgorithm::twoShotLL128>,
                          Algorithm<AllReduceAlgorithm::twoShotMemory>,
                          Algorithm<AllReduceAlgorithm::twoShotMemoryWide>);

TEST_CASE("collectives and barriers in one kernel") {
  for (int ranks : {2, 4}) sweep(ranks, chain);
}

TEST_CASE("team barriers, of overlapping teams too") {
  for (int ranks : {2, 3, 8}) sweep(ranks, [](Rank& rank, std::uint64_t) { teamBarriers(rank); });
}

TEST_CASE("grid barriers") {
  sweep(1, [](Rank& rank, std::uint64_t) { gridBarriers(rank); });
}

TEST_CASE("channels: put, get, signal, wait, by threads, warps and blocks") { sweep(2, overChannel<ChannelKernel>); }

TEST_CASE_TEMPLATE("channels: packets", P, LL8, LL16, LL128) { sweep(2, overChannel<PacketKernel<P>>); }

TEST_CASE("signals between all pairs") {
  for (int ranks : {2, 5, 8}) sweep(ranks, [](Rank& rank, std::uint64_t) { signals(rank); });
}

TEST_CASE_TEMPLATE_DEFINE("72 ranks, unchecked", A, ofARack) {
  constexpr auto algorithm = A::value;
  CAPTURE(name(algorithm));
  auto const result = exploreRanks({72, {}},
                                   [](Rank& rank) {
                                     CallSequence const sequence{{{61, 0, false, 1}, {7, 1, true, 1}}, 32, true, 2048};
                                     allReduceCalls<AllReduceOf<algorithm, Sum>, BFloat16>(rank, sequence);
                                   },
                                   {.schedules = 1, .findRaces = false, .weakMemory = false, .findLostSignals = false});
  CHECK_MESSAGE(result.ok(), sim::toText(result));
}
TEST_CASE_TEMPLATE_INVOKE(ofARack, Algorithm<AllReduceAlgorithm::oneShotLL8>,
                          Algorithm<AllReduceAlgorithm::oneShotLL16>, Algorithm<AllReduceAlgorithm::oneShotLL128>,
                          Algorithm<AllReduceAlgorithm::oneShotMemory>, Algorithm<AllReduceAlgorithm::twoShotLL8>,
                          Algorithm<AllReduceAlgorithm::twoShotLL16>, Algorithm<AllReduceAlgorithm::twoShotLL128>,
                          Algorithm<AllReduceAlgorithm::twoShotMemory>,
                          Algorithm<AllReduceAlgorithm::twoShotMemoryWide>);
