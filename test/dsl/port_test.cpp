// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs whose data proxies move run right, compiled in and as plans: puts with signals and flushes, packets, loops,
// beside memory channels, with data in windows and without.
#include <doctest/doctest.h>

#include "dsl/run.hpp"
#include "mscclpp/dsl/plan_json.hpp"

using namespace dsl_test;

namespace {

// Each rank puts its part to all others, a block for each. In place.
template <int Ranks>
struct PortAllGather {
  static constexpr dsl::Spec spec{
      .name = "port_allgather", .collective = dsl::allGather(Ranks), .inPlace = true, .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    for (int rank = 0; rank < Ranks; ++rank) {
      for (int to = 1; to < Ranks; ++to) {
        int const peer = (rank + to) % Ranks, tb = to - 1;
        auto channel = p.portChannel(peer, rank);
        channel.signal({.tb = tb});  // the call has begun here: come in
        channel.wait({.tb = tb, .dataSync = dsl::after});
        channel.putWithSignalAndFlush(p.rank(peer).output()[rank], p.rank(rank).output()[rank], {.tb = tb});
        channel.wait({.tb = tb, .dataSync = dsl::after});
      }
    }
  }
};

// Each rank sends packets of its input to the other, out of its own scratch, and reduces those that come.
struct PortPackets {
  static constexpr dsl::Spec spec{.name = "port_packets",
                                  .collective = dsl::allReduce(2),
                                  .inPlace = true,
                                  .protocol = dsl::Protocol::lowLatency,
                                  .doubleScratch = true,
                                  .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    dsl::BufferRef const scratch[] = {p.rank(0).scratch(4), p.rank(1).scratch(4)};
    for (int rank = 0; rank < 2; ++rank) {
      auto const self = p.rank(rank);
      int const peer = 1 - rank;
      auto channel = p.portChannel(peer, rank);
      self.copyPackets(scratch[rank](2, 2), self.input()(0, 2));
      channel.putPackets(scratch[peer](0, 2), scratch[rank](2, 2), {.dataSync = dsl::before});
      self.reducePackets(self.output()(0, 2), self.input()(0, 2), {scratch[rank](0, 2)});
      channel.flush();
    }
  }
};

// Rank r's input goes to rank r + 1 in turns, through scratch of the receiver; two memory channels say who may write.
struct PortPipeline {
  static constexpr dsl::Spec spec{.name = "port_pipeline", .collective = dsl::sendReceive(2), .threads = 64};
  static constexpr void define(dsl::Builder& p) {
    dsl::BufferRef const scratch[] = {p.rank(0).scratch(1), p.rank(1).scratch(1)};
    for (int rank = 0; rank < 2; ++rank) {
      auto const self = p.rank(rank);
      int const peer = 1 - rank;
      auto data = p.portChannel(peer, rank);
      auto ready = p.memoryChannel(peer, rank);
      p.loop(256, 1, [&] {
        ready.signal({.relaxed = true});
        ready.wait({.relaxed = true, .dataSync = dsl::after});
        data.putWithSignalAndFlush(scratch[peer][0], self.input()[0]);
        data.wait({.dataSync = dsl::after});
        self.copy(self.output()[0], scratch[rank][0]);
        self.sync(0);
      });
    }
  }
};

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
