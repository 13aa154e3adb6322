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
  checkPlan<float>(asPlan<PortPackets>(), {.counts = {1000, 7}, .packets = dsl::PlanPackets::ll8});
}

TEST_CASE("puts in turns, beside memory channels") { checkBoth<PortPipeline>({.counts = {1000, 3, 64}}); }

TEST_CASE("two hosts' programs on one host") {
  checkBoth<TwoHostsAllReduce>();
  checkBoth<TwoHostsAllGather>();
}

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
namespace {

// On so many hosts of the simulated machine.
template <class P>
void checkBetweenHosts(int perHost, RunCase const& test = {}) {
  auto const ranks = dsl::build<P>().size();
  sim::install({.devices = ranks, .devicesPerNode = perHost});
  checkBoth<P>(test);
  sim::install({.devices = 2});
}

}  // namespace

TEST_CASE("packets between hosts") { checkBetweenHosts<PortPackets>(1); }

TEST_CASE("from input to output between hosts") {
  checkBetweenHosts<PortAllGather<2>>(1, {.offset = 1});
  checkBetweenHosts<PortPipeline>(2);
  checkBetweenHosts<TwoHostsAllGather>(2, {.counts = {1000, 3, 64}, .offset = 2, .seed = 3});
}

TEST_CASE("within hosts by memory channels, between them by ports") { checkBetweenHosts<TwoHostsAllReduce>(2); }

TEST_CASE("calls with other memory between hosts are not taken for calls with what lay there before") {
  sim::install({.devices = 2, .devicesPerNode = 1});
  dsl::ExecutionPlan const plan(asPlan<PortAllGather<2>>());
  forEachRank(2, [&](Rank& rank) {
    constexpr std::size_t count = 64;
    dsl::PlanExecutor const executor(rank.communicator, plan, count * sizeof(float));
    auto const call = [&](float value) {
      // On one rank at the same address as before, on the other elsewhere.
      GpuBuffer<float> const ahead(rank.device, rank.rank == 0 || value == 1 ? 1 : 1 << 20);
      GpuBuffer<float> const buffer(rank.device, 2 * count);
      MemoryWindow const window(rank.communicator, buffer.data(), buffer.bytes(), {}, WindowUse::proxies);
      std::vector<float> values(2 * count, value + static_cast<float>(rank.rank));
      copyToDevice(buffer, std::span<float const>(values));
      rank.meet();
      executor.execute(rank.stream, {.in = buffer.data() + static_cast<std::size_t>(rank.rank) * count,
                                     .out = buffer.data(),
                                     .inBytes = count * sizeof(float),
                                     .outBytes = buffer.bytes(),
                                     .inWindow = &window,
                                     .outWindow = &window});
      rank.synchronize();
      for (std::size_t i = 0; i < 2 * count; ++i) values[i] = value + (i < count ? 0 : 1);
      CHECK(copyToHost(buffer) == values);
      rank.meet();
    };
    for (float const value : {1.f, 5.f, 9.f}) call(value);
  });
  sim::install({.devices = 2});
}

TEST_CASE("windows between hosts are for proxies only") {
  sim::install({.devices = 2, .devicesPerNode = 1});
  forEachRank(2, [&](Rank& rank) {
    GpuBuffer<float> const buffer(rank.device, 64);
    CHECK_THROWS_WITH_AS(MemoryWindow(rank.communicator, buffer.data(), buffer.bytes()),
                         doctest::Contains("is on another host, whose memory only proxies reach: WindowUse::proxies"),
                         Error);
    MemoryWindow const window(rank.communicator, buffer.data(), buffer.bytes(), {}, WindowUse::proxies);
    CHECK(window.deviceHandle().bases[1 - rank.rank] == nullptr);
    CHECK(window.data() == reinterpret_cast<std::byte*>(buffer.data()));
  });
  sim::install({.devices = 2});
}
#endif
