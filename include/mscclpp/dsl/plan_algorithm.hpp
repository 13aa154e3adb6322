// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans as algorithms of a collection, beside the library's and under the same selector, for plain C++:
//
//   algorithms.add(dsl::planAlgorithm(dsl::ExecutionPlan::load("allreduce.json")));
//
// Each has the program's name and collective. What a call needs is made at the first call of its size, to the next
// power of two, and kept as for any user's algorithm (collectives/contexts.hpp); a program whose ranks touch each
// other's input or output makes it for each pair of buffers and takes `symmetric` calls only. Steps through a switch go
// by plain accesses of everybody's memory there, unless they use scratch memory alone. Needs mscclpp::dsl and
// mscclpp::collectives.
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
};

// `Run` is made from (communicator, plan, largest message) and called with (stream, call); `refused` says more of what
// it cannot do.
template <class Run>
std::shared_ptr<Algorithm const> algorithmOf(ExecutionPlan const& of,
                                             std::function<std::string(CollectiveCall const&)> refused) {
  auto const plan = std::make_shared<ExecutionPlan const>(of);
  auto const& program = plan->program();
  auto const executionOf = [](CollectiveCall const& call) {
    return PlanExecution{.in = call.in,
                         .out = call.out,
                         .inBytes = call.inBytes,
                         .outBytes = call.outBytes,
                         .type = call.type,
                         .op = call.op};
  };
  auto const slices = static_cast<unsigned>(program.collective.inputSlices());
  auto const largestOf = [slices](CollectiveCall const& call) {
    return std::bit_ceil(std::max<std::uint64_t>(call.inBytes / slices, 16));
  };
  bool const inWindow = plan->needsInWindow(), outWindow = plan->needsOutWindow();
  NativeFunctions functions;
  functions.contextKey = [=](Communicator const& communicator, CollectiveCall const& call) {
    // Memory that is freed and made anew at the same address is other memory.
    auto const idOf = [&](void const* buffer) { return communicator.device().runtime().allocationOf(buffer).id; };
    if (!inWindow && !outWindow) return ContextKey{.tag = largestOf(call)};
    return ContextKey{call.in, call.out, call.inBytes, call.outBytes, idOf(call.in) << 32 ^ idOf(call.out)};
  };
  functions.makeContext = [=](Communicator const& communicator, CollectiveCall const& call) -> std::shared_ptr<void> {
    auto kept = std::make_shared<KeptRun<Run>>(KeptRun<Run>{Run(communicator, *plan, largestOf(call)), {}, {}});
    auto const window = [&](std::optional<MemoryWindow>& made, BufferKind buffer, void* memory, std::uint64_t bytes) {
      made.emplace(communicator, memory, bytes, std::vector<int>{}, plan->windowUse(communicator, buffer, memory));
    };
    if (inWindow) window(kept->in, BufferKind::input, const_cast<void*>(call.in), call.inBytes);
    if (outWindow) window(kept->out, BufferKind::output, call.out, call.outBytes);
    return kept;
  };
  functions.run = [executionOf](std::shared_ptr<void> const& context, CollectiveCall const& call,
                                Stream const& stream) {
    auto const& kept = *static_cast<KeptRun<Run> const*>(context.get());
    auto execution = executionOf(call);
    if (kept.in) execution.inWindow = &*kept.in;
    if (kept.out) execution.outWindow = &*kept.out;
    kept.run.execute(stream, execution);
  };
  functions.refusal = [=](World const& world, CollectiveCall const& call) -> std::string {
    if (plan->program().size() != world.ranks) {
      return "it is for " + std::to_string(plan->program().size()) + " ranks, the communicator has " +
             std::to_string(world.ranks);
    }
    if (call.blocks != 0 || call.threads != 0) return "its blocks and threads are the program's; leave them 0";
    if (call.rankOrder && call.op != ReduceOp::none) {
      return "it combines in the order of its steps; `rankOrder` of the call asks for the bits of rank order";
    }
    if ((inWindow || outWindow) && !call.symmetric) {
      return "its ranks touch each other's buffers; make `symmetric` calls";
    }
    if (auto why = plan->refusal(world.rank, executionOf(call)); !why.empty()) return why;
    return refused ? refused(call) : std::string();
  };
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
