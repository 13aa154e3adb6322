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

// With threads for all of them, steps of one run lie side by side; with few, each slot's are done together.
TEST_CASE("steps that are done together, in blocks of any size") {
  for (unsigned const threads : {32u, 96u, 128u, 416u}) {
    checkRun<TwoShotPackets<4>, BFloat16, Sum>({.counts = {33, 1000, 4}, .offset = 1, .threads = threads});
    checkRun<OneShotPackets<3>>({.counts = {100, 1}, .threads = threads});
  }
}

TEST_CASE("small messages get few threads") {
  if (!canRun(4)) return;
  forEachRank(4, [](Rank& rank) {
    auto const oneShot = dsl::makeContext<OneShotPackets<4>>(rank.communicator, 1 << 20);
    CHECK(oneShot.launchShape().threads == 1024);
    CHECK(oneShot.launchShape(1 << 20).threads == 1024);
    CHECK(oneShot.launchShape(0).threads == 32);  // one chunk, since no step takes it apart
    CHECK(oneShot.launchShape(1024).threads == 4 * 32);
    CHECK(oneShot.launchShape(1025).threads == 5 * 32);
    CHECK(oneShot.launchShape(1025).blocks == oneShot.launchShape().blocks);
  });
}

TEST_CASE("other collectives") {
  checkRun<ScratchAllToAll<3>>();
  checkRun<TwoLevelReduceScatter, Half>();
  checkRun<PipelinedSendReceive, std::uint8_t>({.counts = {5000, 1, 600}});
}

TEST_CASE("a program that is proved and interpreted when it runs") { checkRun<AtRunTime, float, Max>(); }
