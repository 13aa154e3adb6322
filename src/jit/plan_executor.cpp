// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/jit/plan_executor.hpp"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "base/format.hpp"
#include "jit/background.hpp"
#include "jit/machine.hpp"
#include "jit/plan_source.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/jit/kernel.hpp"

namespace mscclpp::jit {
namespace {

constexpr unsigned callsBeforeBackground = 16;
using PlanKernel =
    Kernel<void(void const*, void*, std::uint64_t, layout::PlanHandle, layout::WindowHandle, layout::WindowHandle)>;

// Which of a plan's kernels.
struct PlanKind {
  DataType type;
  ReduceOp op;
  dsl::PlanPackets packets;

  std::string kernel() const { return instanceName("Program", type, op); }
};
// Only packets have a kind.
PlanKind kindOf(dsl::ExecutionPlan const& plan, DataType type, ReduceOp op, dsl::PlanPackets packets) {
  bool const has = plan.program().protocol == dsl::Protocol::lowLatency;
  return {type, op, has ? packets : dsl::PlanPackets::ll16};
}

class CompiledPlan final : public dsl::PlanCode {
 public:
  CompiledPlan(Device device, Source const& source, std::string const& kernel) : kernel_(device, source, kernel) {}
  void start(Stream const& stream, LaunchShape const& shape, dsl::PlanStart const& call) const override {
    kernel_.launch(stream, shape, call.in, call.out, call.count, call.plan, call.inWindow, call.outWindow);
  }

 private:
  PlanKernel kernel_;
};

}  // namespace

CompileWhen compileWhen() {
  auto const text = processVariable("MSCCLPP_JIT").value_or("");
  if (text == "off" || text.empty()) return CompileWhen::asked;
  if (text == "on") return CompileWhen::firstCall;
  if (text == "background") return CompileWhen::background;
  fail(ErrorCode::invalidUsage, "MSCCLPP_JIT=\"{}\" is none of off, on and background", text);
}

Prepared preparePlan(Target const& target, dsl::ExecutionPlan const& plan, DataType type, ReduceOp op,
                     dsl::PlanPackets packets) {
  auto const kind = kindOf(plan, type, op, packets);
  bool all = true, found = true;
  for (int rank = 0; rank < plan.program().size(); ++rank) {
    if (auto const source = planSource(plan, kind.packets, rank)) {
      found = PlanKernel::prepare(target, *source, kind.kernel()) && found;
    } else {
      all = false;
    }
  }
  return !all ? Prepared::tooLong : found ? Prepared::before : Prepared::now;
}

// Shared by the executors of a plan.
struct PlanExecutor::Codes {
  static std::shared_ptr<Codes> of(dsl::ExecutionPlan const& plan, Communicator const& communicator) {
    static std::mutex mutex;
    static std::map<std::tuple<void const*, DeviceKind, int, int>, std::weak_ptr<Codes>> all;
    auto const device = communicator.device();
    std::lock_guard const lock(mutex);
    std::erase_if(all, [](auto const& each) { return each.second.expired(); });
    auto& known = all[{plan.identity(), device.kind, device.ordinal, communicator.rank()}];
    auto codes = known.lock();
    if (codes == nullptr) known = codes = std::make_shared<Codes>(plan, communicator);
    return codes;
  }

  struct Slot {
    std::atomic<dsl::PlanCode const*> code{nullptr};
    std::atomic<unsigned> calls{0};
    std::atomic<bool> settled{false};  // compiled, or never to be
    std::mutex mutex;
    std::unique_ptr<dsl::PlanCode const> owned;
  };

  Codes(dsl::ExecutionPlan const& of, Communicator const& communicator)
      : plan(of), device(communicator.device()), rank(communicator.rank()) {}

  Slot& at(PlanKind const& kind) {
    auto const op = static_cast<std::size_t>(kind.op), packets = static_cast<std::size_t>(kind.packets);
    return slots[(static_cast<std::size_t>(kind.type) * ops + op) * 2 + packets];
  }

  bool compile(PlanKind const& kind) {
    auto& slot = at(kind);
    std::lock_guard const lock(slot.mutex);
    if (slot.owned == nullptr) {
      auto const source = planSource(plan, kind.packets, rank);
      if (!source) return false;
      slot.owned = std::make_unique<CompiledPlan const>(device, *source, kind.kernel());
      slot.code.store(slot.owned.get(), std::memory_order_release);
    }
    return true;
  }
  // Once: what fails is told, and left.
  void tryToCompile(PlanKind const& kind) noexcept {
    at(kind).settled.store(true);
    try {
      bool const done = compile(kind);
      log(LogLevel::info, "plan '{}' is {} {} and {}", plan.program().name.str(),
          done ? "compiled for" : "too long to be compiled for", nameOf(kind.type), nameOf(kind.op));
    } catch (std::exception const& error) {
      if (!isEnding()) log(LogLevel::warn, "a plan stays interpreted: {}", error.what());
    }
  }

  static constexpr std::size_t ops = reduceOps.size() + 1;
  dsl::ExecutionPlan plan;
  Device device;
  int rank;
  std::array<Slot, dataTypes.size() * ops * 2> slots;
};

PlanExecutor::PlanExecutor(Communicator const& communicator, dsl::ExecutionPlan const& plan, std::uint64_t maxBytes,
                           CompileWhen when)
    : executor_(communicator, plan, maxBytes), codes_(Codes::of(plan, communicator)), when_(when) {}

bool PlanExecutor::compile(DataType type, ReduceOp op, dsl::PlanPackets packets) const {
  return codes_->compile(kindOf(codes_->plan, type, op, packets));
}

bool PlanExecutor::isCompiled(DataType type, ReduceOp op, dsl::PlanPackets packets) const noexcept {
  return codes_->at(kindOf(codes_->plan, type, op, packets)).code.load(std::memory_order_acquire) != nullptr;
}

void PlanExecutor::execute(Stream const& stream, dsl::PlanExecution const& call) const {
  auto const kind = kindOf(codes_->plan, call.type, call.op, call.packets);
  auto& slot = codes_->at(kind);
  if (when_ != CompileWhen::asked && !slot.settled.load(std::memory_order_relaxed)) {
    if (when_ == CompileWhen::firstCall) {
      codes_->tryToCompile(kind);
    } else if (slot.calls.fetch_add(1) == callsBeforeBackground) {
      try {
        auto& machine = machineOf(codes_->device.kind);
        (void)machine.compiler(machine.targetOf(codes_->device));  // loads it
        inBackground([codes = codes_, kind] { codes->tryToCompile(kind); });
      } catch (std::exception const& error) {
        slot.settled.store(true);
        log(LogLevel::warn, "plan '{}' stays interpreted: {}", codes_->plan.program().name.str(), error.what());
      }
    }
  }
  executor_.execute(stream, call, slot.code.load(std::memory_order_acquire));
}

}  // namespace mscclpp::jit
