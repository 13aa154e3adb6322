// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans as algorithms of a collection, beside the library's and under the same selector, for plain C++:
//
//   algorithms.add(dsl::planAlgorithm(dsl::ExecutionPlan::load("allreduce.json")));
//
// Each has the program's name and collective. What a call needs is made at the first call of its size, to the next
// power of two, and kept as for any user's algorithm (collectives/contexts.hpp); a program whose ranks touch each
// other's input or output makes it for each pair of buffers and takes `symmetric` calls only. Steps through a switch go
// by plain accesses of everybody's memory there, unless they use scratch memory alone. On ranks of several hosts port
// channels have proxies of their own, and a program whose other channels join two hosts is refused, so that the next
// algorithm is asked. Needs mscclpp::dsl and mscclpp::collectives.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/runtime.hpp"

namespace mscclpp::dsl {

// Nothing for one that collections do not have.
inline std::optional<mscclpp::Collective> collectiveOf(Program const& program) {
  switch (program.collective.kind) {
    case CollectiveKind::allGather:
      return mscclpp::Collective::allGather;
    case CollectiveKind::allReduce:
      return mscclpp::Collective::allReduce;
    case CollectiveKind::reduceScatter:
      return mscclpp::Collective::reduceScatter;
    case CollectiveKind::allToAll:
      return mscclpp::Collective::allToAll;
    default:
      return std::nullopt;
  }
}

namespace detail {

// What calls of one size, or of one pair of buffers, share.
template <class Run>
struct KeptRun {
  Run run;
  std::optional<MemoryWindow> in, out;

  void execute(Stream const& stream, PlanExecution call) const {
    if (in) call.inWindow = &*in;
    if (out) call.outWindow = &*out;
    run.execute(stream, call);
  }
};

// Which calls of a plan share what. `Run` is made from (communicator, plan, largest message) and called with (stream,
// call).
template <class Run>
class PlanRuns {
 public:
  explicit PlanRuns(ExecutionPlan plan) : plan_(std::move(plan)) {}

  ExecutionPlan const& plan() const { return plan_; }
  // Equal for calls that share a run. Throws invalidUsage for buffers that need a window and are no device memory.
  ContextKey keyOf(Communicator const& communicator, PlanExecution const& call) const {
    if (!plan_.needsWindows()) return {.tag = largestOf(call)};
    // Memory that is freed and made anew at the same address is other memory.
    auto const idOf = [&](void const* buffer) { return communicator.device().runtime().allocationOf(buffer).id; };
    return {call.in, call.out, call.inBytes, call.outBytes, idOf(call.in) << 32 ^ idOf(call.out)};
  }
  // Collective.
  std::shared_ptr<KeptRun<Run>> make(Communicator const& communicator, PlanExecution const& call) const {
    auto kept = std::make_shared<KeptRun<Run>>(KeptRun<Run>{Run(communicator, plan_, largestOf(call)), {}, {}});
    auto const window = [&](std::optional<MemoryWindow>& made, BufferKind buffer, void* memory, std::uint64_t bytes) {
      made.emplace(communicator, memory, bytes, std::vector<int>{}, plan_.windowUse(communicator, buffer, memory));
    };
    if (plan_.needsInWindow()) window(kept->in, BufferKind::input, const_cast<void*>(call.in), call.inBytes);
    if (plan_.needsOutWindow()) window(kept->out, BufferKind::output, call.out, call.outBytes);
    return kept;
  }

 private:
  std::uint64_t largestOf(PlanExecution const& call) const {
    auto const slices = static_cast<unsigned>(plan_.program().collective.inputSlices());
    return std::bit_ceil(std::max<std::uint64_t>(call.inBytes / slices, 16));
  }

  ExecutionPlan plan_;
};

inline PlanExecution executionOf(CollectiveCall const& call) {
  return {.in = call.in,
          .out = call.out,
          .inBytes = call.inBytes,
          .outBytes = call.outBytes,
          .type = call.type,
          .op = call.op};
}

// `refused` says more of what a Run cannot do.
template <class Run>
std::shared_ptr<Algorithm const> algorithmOf(ExecutionPlan const& plan,
                                             std::function<std::string(CollectiveCall const&)> refused) {
  auto const runs = std::make_shared<PlanRuns<Run> const>(plan);
  NativeFunctions functions;
  functions.contextKey = [runs](Communicator const& communicator, CollectiveCall const& call) {
    return runs->keyOf(communicator, executionOf(call));
  };
  functions.makeContext = [runs](Communicator const& communicator,
                                 CollectiveCall const& call) -> std::shared_ptr<void> {
    return runs->make(communicator, executionOf(call));
  };
  functions.run = [](std::shared_ptr<void> const& context, CollectiveCall const& call, Stream const& stream) {
    static_cast<KeptRun<Run> const*>(context.get())->execute(stream, executionOf(call));
  };
  functions.refusal = [runs, refused](World const& world, CollectiveCall const& call) -> std::string {
    auto const ranks = runs->plan().program().size();
    if (ranks != world.ranks) {
      return "it is for " + std::to_string(ranks) + " ranks, the communicator has " + std::to_string(world.ranks);
    }
    if (auto why = hostsRefusal(runs->plan().program(), world.hosts); !why.empty()) return why;
    if (call.blocks != 0 || call.threads != 0) return "its blocks and threads are the program's; leave them 0";
    if (call.rankOrder && call.op != ReduceOp::none) {
      return "it combines in the order of its steps; `rankOrder` of the call asks for the bits of rank order";
    }
    if (runs->plan().needsWindows() && !call.symmetric) {
      return "its ranks touch each other's buffers; make `symmetric` calls";
    }
    if (auto why = runs->plan().refusal(world.rank, executionOf(call)); !why.empty()) return why;
    return refused ? refused(call) : std::string();
  };
  auto const& program = plan.program();
  auto const collective = collectiveOf(program);
  if (!collective) {
    throw Error(ErrorCode::invalidUsage, "program '" + program.name.str() +
                                             "' is of a collective of its own, which no collection knows; run it by "
                                             "PlanExecutor or dsl::kernel");
  }
  return std::make_shared<NativeAlgorithm>(program.name.str(), *collective, std::move(functions));
}

}  // namespace detail

// By the interpreter of plans, any type and operation. Throws invalidUsage for a collective that collections lack.
inline std::shared_ptr<Algorithm const> planAlgorithm(ExecutionPlan const& plan) {
  return detail::algorithmOf<PlanExecutor>(plan, nullptr);
}

}  // namespace mscclpp::dsl
