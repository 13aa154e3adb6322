// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs whose data proxies move run right, compiled in and as plans: puts with signals and flushes, packets, loops,
// beside memory channels, with data in windows and without.
#include <doctest/doctest.h>

#include "dsl/channel_programs.hpp"
#include "dsl/run.hpp"
#include "mscclpp/dsl/plan_json.hpp"

using namespace dsl_test;

namespace {

template <class P>
dsl::Program asPlan() {
  return dsl::programFromJson(dsl::toJson<P>(), "of the test");
}

template <class P>
void checkBoth(RunCase const& test = {}) {
  REQUIRE(dsl::verify<P>());
  checkRun<P>(test);
  checkPlan<float>(asPlan<P>(), test);
}

}  // namespace

TEST_CASE("puts with signals and flushes") {
  checkBoth<PortAllGather<2>>();
  checkBoth<PortAllGather<4>>({.counts = {100, 1, 1000}, .offset = 1, .seed = 2});
}

TEST_CASE("packets that proxies move") {
  checkBoth<PortPackets>();
  checkRun<PortPackets, std::int32_t, Max, LL8>();
}

TEST_CASE("puts in turns, beside memory channels") { checkBoth<PortPipeline>({.counts = {1000, 3, 64}}); }

TEST_CASE("a port that moves data of no window says so") {
  if (!canRun(2)) return;
  auto const program = dsl::build<PortAllGather<2>>();
  forEachRank(2, [&](Rank& rank) {
    dsl::PlanExecutor const executor(rank.communicator, dsl::ExecutionPlan(program), 1024);
    GpuBuffer<float> const buffer(rank.device, 512);
    auto* const x = buffer.data();
    CHECK_THROWS_AS(
        executor.execute(rank.stream, {.in = x + rank.rank * 256, .out = x, .inBytes = 1024, .outBytes = 2048}), Error);
    rank.communicator.bootstrap()->barrier();
  });
}

#if !defined(__CUDACC__)
TEST_CASE("packets between hosts") {
  sim::install({.devices = 2, .devicesPerNode = 1});
  dsl::ExecutionPlan const plan(asPlan<PortPackets>());
  CHECK(!plan.needsInWindow());
  forEachRank(2, [&](Rank& rank) {
    REQUIRE(!rank.communicator.reaches(1 - rank.rank));
    constexpr std::size_t count = 500;
    dsl::PlanExecutor const executor(rank.communicator, plan, count * sizeof(float));
    GpuBuffer<float> const buffer(rank.device, count);
    copyToDevice(buffer, std::span<float const>(std::vector<float>(count, static_cast<float>(rank.rank + 1))));
    auto* const x = buffer.data();
    for (int call = 0; call < 3; ++call) {
      executor.execute(rank.stream, {.in = x, .out = x, .inBytes = buffer.bytes(), .outBytes = buffer.bytes()});
    }
    rank.synchronize();
    CHECK(copyToHost(buffer) == std::vector<float>(count, 12));
  });
  sim::install({.devices = 2});
}
#endif
