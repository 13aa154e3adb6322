// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans that are loaded run right; calls that do not fit are refused.
#include <doctest/doctest.h>

#include <string>

#include "dsl/programs.hpp"
#include "dsl/run.hpp"
#include "mscclpp/dsl/passes/prune.hpp"
#include "mscclpp/dsl/passes/split.hpp"
#include "mscclpp/dsl/plan_json.hpp"

using namespace dsl_test;

namespace {

// Written and read again.
template <class P>
dsl::Program asPlan() {
  return dsl::programFromJson(dsl::toJson<P>(), "of the test");
}

}  // namespace

TEST_CASE("plans of every collective") {
  checkPlan<float>(asPlan<SimpleAllGather>());
  checkPlan<std::int64_t>(asPlan<RingAllGather<4>>(), {.offset = 1});
  checkPlan<float>(asPlan<RelayAllGather<3, 2>>(), {.counts = {1, 5, 33, 1000, 1003}});
  checkPlan<std::uint8_t>(asPlan<ScratchAllToAll<3>>());
  checkPlan<Half>(dsl::build<UnevenAllToAll>(),
                  {.counts = {720, 72, 3600}});  // a plan in JSON has no demand of its own
  checkPlan<BFloat16>(asPlan<TwoLevelReduceScatter>());
  checkPlan<Float8E4M3>(asPlan<PipelinedSendReceive>(), {.counts = {5000, 1, 600}});
  checkPlan<double, Prod>(asPlan<OneShotPackets<3>>());
  checkPlan<std::int32_t, Min>(asPlan<TwoShotPackets<4, 2>>());
  checkPlan<float, Avg>(asPlan<TwoShotPackets<4>>());
  checkPlan<Half, Max>(asPlan<PullPushAllReduce<4>>());
}

TEST_CASE("passes keep what a program does") {
  auto const original = dsl::build<PullPushAllReduce<3>>();
  SUBCASE("chunks are split") { checkPlan<float>(dsl::splitChunks(original, 3)); }
  SUBCASE("instances, neighbouring parts") {
    checkPlan<float>(dsl::replicate(original, 3, dsl::Replication::interleaved));
  }
  SUBCASE("instances, a run of chunks each") {
    checkPlan<float>(dsl::replicate(original, 3, dsl::Replication::grouped));
  }
  SUBCASE("syncs are pruned") {
    auto pruned = original;
    for (auto& rank : pruned.ranks) rank.blocks[0].steps.insert(rank.blocks[0].steps.begin() + 1, dsl::Step{});
    CHECK(dsl::pruneSyncs(pruned) >= pruned.size());
    checkPlan<float>(pruned);
  }
}

TEST_CASE("several plans and streams at once") {
  if (!canRun(2)) return;
  dsl::ExecutionPlan const plans[] = {dsl::ExecutionPlan(asPlan<TwoShotPackets<2>>()),
                                      dsl::ExecutionPlan(asPlan<OneShotPackets<2>>())};
  forEachRank(2, [&](Rank& rank) {
    Stream const streams[] = {Stream(rank.device), Stream(rank.device), Stream(rank.device)};
    std::vector<dsl::PlanExecutor> executors;
    std::vector<GpuBuffer<float>> buffers;
    for (int i = 0; i < 3; ++i) {
      executors.emplace_back(rank.communicator, plans[i % 2], 4096);
      buffers.emplace_back(rank.device, 1000);
      copyToDevice(buffers.back(), std::span<float const>(std::vector<float>(1000, static_cast<float>(rank.rank + i))));
    }
    for (int call = 0; call < 3; ++call) {
      for (std::size_t i = 0; i < 3; ++i) {
        auto* const x = buffers[i].data();
        executors[i].execute(streams[i], {.in = x, .out = x, .inBytes = 4000, .outBytes = 4000});
      }
    }
    for (auto const& stream : streams) rank.communicator.synchronize(stream);
    rank.communicator.bootstrap()->barrier();
    for (std::size_t i = 0; i < 3; ++i) {
      // Sums of 0 + i and 1 + i, doubled by each further call.
      CHECK(copyToHost(buffers[i]) == std::vector<float>(1000, static_cast<float>((2 * i + 1) * 4)));
    }
  });
}

TEST_CASE("calls that do not fit are refused") {
  if (!canRun(2)) return;
  dsl::ExecutionPlan const plan(asPlan<SimpleAllGather>());
  auto reduce = asPlan<TwoShotPackets<2>>();
  for (auto& rank : reduce.ranks) {
    for (auto& step : rank.blocks[0].steps) step.reduce = dsl::ReduceKind::min;
  }
  dsl::ExecutionPlan const minimum(reduce), scratch(asPlan<ScratchAllToAll<2>>());
  forEachRank(2, [&](Rank& rank) {
    dsl::PlanExecutor const executor(rank.communicator, plan, 1024);
    dsl::PlanExecutor const minimumExecutor(rank.communicator, minimum, 1024);
    GpuBuffer<float> const buffer(rank.device, 1024);
    auto const refusal = [&](dsl::PlanExecutor const& of, dsl::PlanExecution const& call) -> std::string {
      try {
        of.execute(rank.stream, call);
      } catch (Error const& error) {
        CHECK(error.code() == ErrorCode::invalidUsage);
        return error.what();
      }
      return "";
    };
    auto* const x = buffer.data();
    auto* const part = x + static_cast<std::size_t>(rank.rank) * 64;
    auto const says = [](std::string const& text, char const* what) {
      CHECK_MESSAGE(text.find(what) != std::string::npos, text);
    };
    says(refusal(executor, {.in = part, .out = x, .inBytes = 256, .outBytes = 500}), "512 bytes of output");
    says(refusal(executor, {.in = x + 900, .out = x, .inBytes = 256, .outBytes = 512}), "works in place");
    says(refusal(executor, {.in = part, .out = x, .inBytes = 256, .outBytes = 512}), "give a MemoryWindow");
    says(refusal(executor,
                 {.in = x + 512 * static_cast<std::size_t>(rank.rank), .out = x, .inBytes = 2048, .outBytes = 4096}),
         "at most 1024");
    says(refusal(minimumExecutor, {.in = x, .out = x, .inBytes = 256, .outBytes = 256}),
         "reduces by min, the call asks for sum");
    auto const refusedFor = [&](dsl::ExecutionPlan const& of, std::uint64_t maxBytes) -> std::string {
      try {
        dsl::PlanExecutor const any(rank.communicator, of, maxBytes);
      } catch (Error const& error) {
        CHECK(error.code() == ErrorCode::invalidUsage);
        return error.what();
      }
      return "";
    };
    says(refusedFor(plan, std::uint64_t{1} << 40), "for messages of 1099511627776 bytes; 68718428160 are possible");
    says(refusedFor(minimum, std::uint64_t{1} << 34),
         "sends chunks of 8589934592 bytes of a message of 17179869184 as packets; 4294967280 are possible");
    says(refusedFor(scratch, std::uint64_t{1} << 36 >> 1),
         "needs 68719476736 bytes of scratch for messages of 34359738368 bytes; 68719476720 are possible");
    rank.communicator.bootstrap()->barrier();
  });
  auto wrong = asPlan<SimpleAllGather>();
  wrong.ranks[0].blocks[0].steps.pop_back();
  wrong.ranks[0].blocks[0].steps.pop_back();
  CHECK_THROWS_AS(dsl::ExecutionPlan{wrong}, Error);
  CHECK_THROWS_AS(dsl::ExecutionPlan::load("no/such/plan.json"), Error);
}
