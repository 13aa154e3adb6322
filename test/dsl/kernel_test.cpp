// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs compiled into kernels do what they were proved to do, for any size, call after call.
#include <doctest/doctest.h>

#include "dsl/programs.hpp"
#include "dsl/run.hpp"

using namespace dsl_test;

namespace {

struct AtRunTime : TwoShotPackets<4> {
  static constexpr dsl::Spec spec{.name = "at_run_time",
                                  .collective = dsl::allReduce(4),
                                  .inPlace = true,
                                  .protocol = dsl::Protocol::lowLatency,
                                  .compiled = false};
};

}  // namespace

TEST_CASE("all-gathers") {
  checkRun<SimpleAllGather>();
  checkRun<RingAllGather<4>>();
  checkRun<AllPairsAllGather<3, 2>, std::int8_t>({.offset = 1});
}

TEST_CASE("all-reduces") {
  checkRun<OneShotPackets<2>>();
  checkRun<OneShotPackets<4>, BFloat16, Max>({.offset = 3});
  checkRun<TwoShotPackets<4>, std::int32_t, Prod, LL8>();
  checkRun<TwoShotPackets<3, 2>, double, Avg>();
  checkRun<PullPushAllReduce<4, 2>, float, Min>({.offset = 1});
}

TEST_CASE("other collectives") {
  checkRun<ScratchAllToAll<3>>();
  checkRun<TwoLevelReduceScatter, Half>();
  checkRun<PipelinedSendReceive, std::uint8_t>({.counts = {5000, 1, 600}});
}

TEST_CASE("a program that is proved and interpreted when it runs") { checkRun<AtRunTime, float, Max>(); }
