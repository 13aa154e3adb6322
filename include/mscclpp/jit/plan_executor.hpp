// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans that are compiled while the program runs, so that their steps are code as those of a program that was compiled
// ahead, and not a table that is interpreted:
//
//   jit::PlanExecutor const executor(communicator, plan, /*maxBytes=*/1 << 20);
//   executor.compile(DataType::float32, ReduceOp::sum);   // or by itself, by MSCCLPP_JIT
//   executor.execute(stream, {.in = x, .out = x, .inBytes = n, .outBytes = n, .type = DataType::float32});
//
// The plan, and with it its proof, is the same; ranks of one call may have it as code and as a table. A kernel has
// the steps of the ranks that do the same; one is made for each element type, operation and kind of packets, and kept
// as all that jit compiles (kernel.hpp). The executors of a plan and of its copies share them on a rank.
#pragma once

#include <cstdint>
#include <memory>

#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/jit/kernel.hpp"

namespace mscclpp::jit {

// When a plan gets kernels of its own; until then, and where it gets none, its table is interpreted.
enum class CompileWhen : std::uint8_t {
  asked,       // only by compile()
  firstCall,   // in the first call of a kind, which waits for it
  background,  // after some calls of a kind, by a thread of the library; calls are interpreted until then
};
// By MSCCLPP_JIT: off, on or background. Throws invalidUsage for another value.
CompileWhen compileWhen();

// What preparePlan() did: compiled now; found what had been compiled before; nothing for ranks whose part is too long.
enum class Prepared : std::uint8_t { now, before, tooLong };
// Compiles the kernels of a plan's ranks for processes to come, where that has not been done; `tooLong` where a rank's
// is. Throws as AnyKernel does.
Prepared preparePlan(Target const& target, dsl::ExecutionPlan const& plan, DataType type, ReduceOp op,
                     dsl::PlanPackets packets = dsl::PlanPackets::ll16);

class PlanExecutor {
 public:
  // Throws as dsl::PlanExecutor does, whose arguments these are.
  PlanExecutor(Communicator const& communicator, dsl::ExecutionPlan const& plan, std::uint64_t maxBytes,
               CompileWhen when = compileWhen());

  // Returns when calls of that kind have a kernel of their own. False where the rank's part is too long for that (some
  // 250 steps of a block, or 1000 in all) and stays interpreted. Throws as AnyKernel does.
  bool compile(DataType type, ReduceOp op, dsl::PlanPackets packets = dsl::PlanPackets::ll16) const;
  bool isCompiled(DataType type, ReduceOp op, dsl::PlanPackets packets = dsl::PlanPackets::ll16) const noexcept;

  // As dsl::PlanExecutor::execute(). What cannot be compiled is logged once, and interpreted.
  void execute(Stream const& stream, dsl::PlanExecution const& call) const;

  // Of a call whose message has so many bytes.
  LaunchShape launchShape(DataType type, ReduceOp op, dsl::PlanPackets packets, std::uint64_t bytes) const noexcept {
    auto const form = isCompiled(type, op, packets) ? dsl::StepForm::code : dsl::StepForm::table;
    return executor_.context().launchShape(bytes, form);
  }

 private:
  struct Codes;
  dsl::PlanExecutor executor_;
  std::shared_ptr<Codes> codes_;  // of all executors of the plan, and of the thread that compiles
  CompileWhen when_;
};

}  // namespace mscclpp::jit
