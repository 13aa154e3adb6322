// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/dsl/execution_plan.hpp"

#include <algorithm>
#include <utility>

#include "base/json_place.hpp"
#include "dsl/start_plan.hpp"
#include "mscclpp/dsl/detail/lower/lower.hpp"
#include "mscclpp/dsl/passes/coarsen.hpp"
#include "mscclpp/dsl/passes/promote.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/multicast.hpp"

namespace mscclpp::dsl {

ExecutionPlan ExecutionPlan::load(std::string const& path) {
  return ExecutionPlan(programFromJson(readFile(path, fmt::format("plan {}", path)), path));
}

ExecutionPlan::ExecutionPlan(Program program) : facts_(std::make_shared<Facts const>(factsOf(std::move(program)))) {}

ExecutionPlan::Facts ExecutionPlan::factsOf(Program of) {
  Facts facts{.program = std::move(of), .verdict = {}, .reductions = {}};
  auto& program = facts.program;
  facts.verdict = prove(program);
  if (!facts.verdict.right()) {
    fail(ErrorCode::invalidUsage, "plan '{}' is wrong: {}", program.name.str(), facts.verdict.diagnostic.str());
  }
  for (int rank = 0; rank < program.size(); ++rank) {
    for (auto const& block : program.ranks[static_cast<std::size_t>(rank)].blocks) {
      for (auto const& step : block.steps) {
        auto& reductions = facts.reductions;
        bool const known = std::find(reductions.begin(), reductions.end(), step.reduce) != reductions.end();
        if (step.sources.size() > 1 && !known) reductions.push_back(step.reduce);
        for (auto const* operands : {&step.sources, &step.targets}) {
          for (auto const& chunks : *operands) {
            auto const buffer = program.canonical(chunks).buffer;
            bool const windowed = chunks.rank != rank || step.link == ChannelKind::port;
            if (buffer == BufferKind::scratch) continue;
            facts.remote[static_cast<int>(buffer)] |= windowed;
            facts.switched[static_cast<int>(buffer)] |= step.link == ChannelKind::switched;
          }
        }
      }
    }
  }
  auto made = program;
  coarsen(made);
  facts.wholeMessage = std::uint64_t{16} * static_cast<unsigned>(shapeOf(made, true).longestOf);
  return facts;
}

WindowUse ExecutionPlan::windowUse(Communicator const& communicator, BufferKind buffer, void const* memory) const {
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (!communicator.reaches(rank)) return WindowUse::proxies;
  }
  bool const multicast = facts_->switched[static_cast<int>(buffer)] && canMulticast(communicator, memory);
  return multicast ? WindowUse::multicast : WindowUse::threads;
}

std::string ExecutionPlan::refusal(int rank, PlanExecution const& call) const {
  auto const& collective = program().collective;
  auto const slices = [](int count) { return static_cast<unsigned>(count); };
  auto const message = call.inBytes / slices(collective.inputSlices());
  auto const outBytes = message * slices(collective.outputSlices());
  if (call.inBytes % (slices(collective.inputSlices()) * bytesOf(call.type)) != 0 || call.outBytes != outBytes) {
    return fmt::format(
        "{} bytes of input and {} of output, of {} each, do not fit: an input of that size goes with {} bytes of "
        "output, and both are whole elements for each rank",
        call.inBytes, call.outBytes, nameOf(call.type), outBytes);
  }
  auto const judged = std::max(call.inBytes, call.outBytes);
  if (judged < program().minBytes || judged > program().maxBytes) {
    return fmt::format("a message of {} bytes; it is for {} to {}", judged, program().minBytes, program().maxBytes);
  }
  if (verdict().needsEvenChunks && message % facts_->wholeMessage != 0) {
    return fmt::format(
        "{} bytes a rank; it moves data between chunks of different places, so messages are multiples of {} bytes",
        message, facts_->wholeMessage);
  }
  if (call.packets == PlanPackets::ll8 && program().protocol == Protocol::lowLatency && bytesOf(call.type) > 4) {
    return fmt::format("LL8 packets, which hold 4 bytes of data and no {}; take LL16", nameOf(call.type));
  }
  auto const kind = kindOf(call.op);
  for (auto const reduction : facts_->reductions) {
    if (reduction == ReduceKind::asCalled && call.op == ReduceOp::none) return "it reduces; name the operation";
    if (reduction == ReduceKind::asCalled || reduction == kind) continue;
    return fmt::format("it reduces by {}, the call asks for {}; ask for {}", nameOf(reduction), nameOf(call.op),
                       nameOf(reduction));
  }
  if (call.op == ReduceOp::avg && !verdict().canAverage) {
    return "it cannot average: one of its steps makes now a part of a result, now all of it; ask for sum";
  }
  auto const* const in = static_cast<std::byte const*>(call.in);
  auto const* const out = static_cast<std::byte const*>(call.out);
  auto const part = static_cast<std::size_t>(rank) * message;
  if (program().inPlace) {
    auto const* const wanted = call.inBytes < call.outBytes   ? out + part
                               : call.inBytes > call.outBytes ? out - part
                                                              : out;
    if (in != wanted) {
      return "it works in place: the input is the output, or the smaller one this rank's part of the larger";
    }
  } else if (in < out + call.outBytes && out < in + call.inBytes) {
    return "it does not work in place; give buffers that do not overlap";
  }
  return {};
}

PlanExecutor::PlanExecutor(Communicator const& communicator, ExecutionPlan const& plan, std::uint64_t maxBytes)
    : plan_(plan), context_(communicator, plan.program(), plan.verdict(), maxBytes) {}

void PlanExecutor::check(PlanExecution const& call) const {
  int const rank = context_.deviceHandle().rank;
  auto const name = plan_.program().name.str();
  if (auto const why = plan_.refusal(rank, call); !why.empty()) {
    fail(ErrorCode::invalidUsage, "rank {}: plan '{}': {}", rank, name, why);
  }
  auto const message = call.inBytes / static_cast<unsigned>(context_.deviceHandle().shape.inputSlices);
  if (message > context_.maxBytes()) {
    fail(ErrorCode::invalidUsage, "rank {}: plan '{}' with {} bytes a rank; its executor was made for at most {}", rank,
         name, message, context_.maxBytes());
  }
  auto const needs = [&](bool needed, MemoryWindow const* window, void const* buffer, std::uint64_t bytes,
                         char const* what) {
    if (!needed || (window != nullptr && window->contains(buffer, bytes))) return;
    fail(ErrorCode::invalidUsage,
         "rank {}: plan '{}' lets ranks touch each other's {}; give a MemoryWindow that holds all {} bytes of it", rank,
         name, what, bytes);
  };
  needs(plan_.needsInWindow(), call.inWindow, call.in, call.inBytes, "input");
  needs(plan_.needsOutWindow(), call.outWindow, call.out, call.outBytes, "output");
}

void PlanExecutor::execute(Stream const& stream, PlanExecution const& call, PlanCode const* code) const {
  check(call);
  auto const count =
      call.inBytes / static_cast<unsigned>(context_.deviceHandle().shape.inputSlices) / bytesOf(call.type);
  static layout::WindowHandle const noWindow{};
  auto const handle = context_.deviceHandle(plan_.needsInWindow() ? call.inWindow : nullptr,
                                            plan_.needsOutWindow() ? call.outWindow : nullptr);
  PlanStart const start{call.in,
                        call.out,
                        count,
                        call.type,
                        call.op,
                        call.packets,
                        handle,
                        call.inWindow == nullptr ? noWindow : call.inWindow->deviceHandle(),
                        call.outWindow == nullptr ? noWindow : call.outWindow->deviceHandle()};
  auto const kind = stream.device().kind;
  auto const shape =
      context_.launchShape(count * bytesOf(call.type), code == nullptr ? StepForm::table : StepForm::code);
  if (code != nullptr) return code->start(stream, shape, start);
#if defined(MSCCLPP_DSL_SIM)
  if (kind == DeviceKind::sim) return startPlan(stream, shape, start, MachineTag<DeviceKind::sim>{});
#endif
#if defined(MSCCLPP_DSL_CUDA)
  if (kind == DeviceKind::cuda) return startPlan(stream, shape, start, MachineTag<DeviceKind::cuda>{});
#endif
  fail(ErrorCode::unsupported, "plan '{}': this build has no kernels for devices of kind {}",
       plan_.program().name.str(), nameOf(kind));
}

}  // namespace mscclpp::dsl
