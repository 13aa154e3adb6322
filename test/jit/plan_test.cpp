// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans that are compiled while this runs do what the interpreter makes of them.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "dsl/channel_programs.hpp"
#include "dsl/programs.hpp"
#include "dsl/run.hpp"
#include "jit/cache.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/jit/plan_executor.hpp"
#include "support/temporary_folder.hpp"

using namespace dsl_test;

namespace {

struct OwnCache {
  TemporaryFolder folder;
  OwnCache() { ::setenv("MSCCLPP_CACHE_DIR", folder.path().c_str(), 1); }
} const ownCache;

// As a plan that was written and read again; on the ranks that `isCode` names as code, on the others as a table.
template <class P, class T = float, class Op = Sum>
void checkCompiled(
    RunCase const& test = {}, bool (*isCode)(int rank) = [](int) { return true; }) {
  auto const make = [&](Communicator const& communicator, dsl::ExecutionPlan const& plan, std::uint64_t maxBytes) {
    jit::PlanExecutor executor(communicator, plan, maxBytes, jit::CompileWhen::asked);
    if (isCode(communicator.rank())) {
      CHECK(executor.compile(dataTypeOf<T>(), reduceOpOf<Op>(), test.packets));
      CHECK(executor.isCompiled(dataTypeOf<T>(), reduceOpOf<Op>(), test.packets));
    }
    return executor;
  };
  checkPlanBy<T, Op>(make, dsl::programFromJson(dsl::toJson<P>(), "of the test"), test);
}

}  // namespace

TEST_CASE("packets, of either kind, and averages") {
  checkCompiled<TwoShotPackets<3>, BFloat16, Avg>();
  checkCompiled<OneShotPackets<2>, std::int32_t, Max>({.packets = dsl::PlanPackets::ll8});
}

TEST_CASE("ranks that have a plan as code go together with those that have it as a table") {
  checkCompiled<PullPushAllReduce<3>>({.offset = 1}, [](int rank) { return rank != 1; });
}

TEST_CASE("ports") { checkCompiled<PortAllGather<2>>(); }

TEST_CASE("kinds of a plan are made once each, when they are asked for") {
  if (!canRun(2)) return;
  auto const program = dsl::build<OneShotPackets<2>>();
  dsl::ExecutionPlan const plan(program), plan1(program), plan2(program);
  auto const made = jit::Cache::instance().counts().made;
  std::atomic<int> done{0};
  forEachRank(2, [&](Rank& rank) {
    bool told = false;
    GpuBuffer<float> const buffer(rank.device, 256);
    auto* const x = buffer.data();
    dsl::PlanExecution const call{.in = x, .out = x, .inBytes = 1024, .outBytes = 1024};
    auto const has = [](jit::PlanExecutor const& executor) {
      return executor.isCompiled(DataType::float32, ReduceOp::sum);
    };
    jit::PlanExecutor const asked(rank.communicator, plan, 1024, jit::CompileWhen::asked);
    jit::PlanExecutor const first(rank.communicator, plan1, 1024, jit::CompileWhen::firstCall);
    jit::PlanExecutor const later(rank.communicator, plan2, 1024, jit::CompileWhen::background);
    for (auto const* executor : {&asked, &first, &later}) {
      executor->execute(rank.stream, call);
      rank.synchronize();
    }
    CHECK(!has(asked));
    CHECK(has(first));
    CHECK(has(jit::PlanExecutor(rank.communicator, plan1, 512, jit::CompileWhen::asked)));  // what one has, all have
    CHECK(!first.isCompiled(DataType::float32, ReduceOp::max));
    CHECK(!has(later));
    // Another kernel. Calls go on while it is compiled and loaded, the same number on both ranks.
    auto maximum = call;
    maximum.op = ReduceOp::max;
    for (int turn = 0; turn < 1000 && done.load() != 2; ++turn) {
      for (int i = 0; i < 20; ++i) later.execute(rank.stream, maximum);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      rank.communicator.bootstrap()->barrier();
      if (!told && later.isCompiled(DataType::float32, ReduceOp::max)) {
        told = true;
        ++done;
      }
      rank.communicator.bootstrap()->barrier();
    }
    rank.synchronize();
    CHECK(told);
  });
  CHECK(jit::Cache::instance().counts().made == made + 2);  // ranks share them
}

TEST_CASE("what is too long for code is interpreted") {
  auto program = dsl::build<OneShotPackets<2>>();
  for (auto& rank : program.ranks) {
    auto& steps = rank.blocks[0].steps;
    steps.insert(steps.end(), 300, dsl::Step{});  // barriers of the block
  }
  auto const make = [](Communicator const& communicator, dsl::ExecutionPlan const& plan, std::uint64_t maxBytes) {
    jit::PlanExecutor executor(communicator, plan, maxBytes, jit::CompileWhen::firstCall);
    CHECK(!executor.compile(DataType::float32, ReduceOp::sum));
    return executor;
  };
  checkPlanBy<float, Sum>(make, program, {});
}

TEST_CASE("settings that are none are refused") {
  ::setenv("MSCCLPP_JIT", "sometimes", 1);
  CHECK_THROWS_WITH_AS((void)jit::compileWhen(), "MSCCLPP_JIT=\"sometimes\" is none of off, on and background", Error);
  ::setenv("MSCCLPP_JIT", "on", 1);
  CHECK(jit::compileWhen() == jit::CompileWhen::firstCall);
  ::unsetenv("MSCCLPP_JIT");
}
