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
  CAPTURE(algorithm.view());
  for (int ranks : {2, 3, 5, 8}) {
    sweep(ranks, [](Rank& rank, std::uint64_t variant) {
      allReduceCalls<NamedAllReduce<algorithm, Sum>, BFloat16>(rank, callSequence(variant));
    });
  }
  sweep(4, [](Rank& rank, std::uint64_t variant) {
    allReduceCalls<NamedAllReduce<algorithm, Sum, 4>, float>(rank, callSequence(100 + variant));
  });
}
template <FixedName A>
struct Algorithm {
  static constexpr auto value = A;
};
TEST_CASE_TEMPLATE_INVOKE(everyAllReduce, Algorithm<"oneshot_ll8">, Algorithm<"oneshot_ll16">,
                          Algorithm<"oneshot_ll128">, Algorithm<"oneshot_memory">, Algorithm<"twoshot_ll8">,
                          Algorithm<"twoshot_ll16">, Algorithm<"twoshot_ll128">, Algorithm<"twoshot_memory">,
                          Algorithm<"twoshot_memory_wide">);

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
  CAPTURE(algorithm.view());
  auto const result = exploreRanks({72, {}},
                                   [](Rank& rank) {
                                     CallSequence const sequence{{{61, 0, false, 1}, {7, 1, true, 1}}, 32, true, 2048};
                                     allReduceCalls<NamedAllReduce<algorithm, Sum>, BFloat16>(rank, sequence);
                                   },
                                   {.schedules = 1, .findRaces = false, .weakMemory = false, .findLostSignals = false});
  CHECK_MESSAGE(result.ok(), sim::toText(result));
}
TEST_CASE_TEMPLATE_INVOKE(ofARack, Algorithm<"oneshot_ll8">, Algorithm<"oneshot_ll16">, Algorithm<"oneshot_ll128">,
                          Algorithm<"oneshot_memory">, Algorithm<"twoshot_ll8">, Algorithm<"twoshot_ll16">,
                          Algorithm<"twoshot_ll128">, Algorithm<"twoshot_memory">, Algorithm<"twoshot_memory_wide">);
