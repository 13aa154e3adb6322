// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans that are loaded and run: written by toJson(), by MSCCL++'s DSL, or built at run time.
//
//   auto const plan = dsl::ExecutionPlan::load("allreduce.json");     // read and proved; a wrong one is refused
//   dsl::PlanExecutor executor(communicator, plan, /*maxBytes=*/1 << 20);
//   executor.execute(stream, {.in = x, .out = x, .inBytes = n, .outBytes = n, .type = DataType::float32});
//
// Making an executor is collective over the ranks of the communicator. Each executor has memory and counters of its
// own: any number of plans may run at once, a stream for each executor. Errors are thrown before anything is started.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/device/data_type.hpp"
#include "mscclpp/dsl/plan_context.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/layout/plan_handle.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp::dsl {

// In which packets of a plan travel: 4 bytes of data in 8, or 8 in 16, which is as fast or faster but needs a network
// that delivers 16 bytes whole where ports move them.
enum class PlanPackets : std::uint8_t { ll8, ll16 };

// One rank's call. Sizes are those of whole buffers, in bytes.
struct PlanExecution {
  void const* in;
  void* out;
  std::uint64_t inBytes;
  std::uint64_t outBytes;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  PlanPackets packets = PlanPackets::ll16;  // the same on all ranks
  // That hold `in` and `out` at the same place on every rank, where the plan needs them: see windowUse().
  MemoryWindow const* inWindow = nullptr;
  MemoryWindow const* outWindow = nullptr;
};

class ExecutionPlan {
 public:
  // Throws invalidUsage for a file that is no plan, and for a plan that is wrong, with its diagnostic.
  static ExecutionPlan load(std::string const& path);
  explicit ExecutionPlan(Program program);

  // What was read or given, with relaxed steps made ordered where its proof needs that, and the verdict: it is right.
  Program const& program() const noexcept { return facts_->program; }
  Verdict const& verdict() const noexcept { return facts_->verdict; }
  // The same for copies of this plan, which share all that is in it, and for no other plan while one of them is there.
  void const* identity() const noexcept { return facts_.get(); }
  // Whether ranks touch each other's input, output, or proxies touch them: then calls need windows of them.
  bool needsInWindow() const noexcept { return facts_->remote[0]; }
  bool needsOutWindow() const noexcept { return facts_->remote[1]; }
  bool needsWindows() const noexcept { return needsInWindow() || needsOutWindow(); }
  // What a window of this memory, which is the input or the output of calls, should be made for. Collective.
  WindowUse windowUse(Communicator const& communicator, BufferKind buffer, void const* memory) const;
  // Why rank `rank` cannot make the call by this plan, as a sentence; empty where it can. Says nothing of windows.
  std::string refusal(int rank, PlanExecution const& call) const;

 private:
  struct Facts {
    Program program;
    Verdict verdict;
    bool remote[2]{}, switched[2]{};     // by buffer
    std::vector<ReduceKind> reductions;  // that its steps carry out, each once
    std::uint64_t wholeMessage = 16;     // where chunks must be equally long: what messages are multiples of
  };
  static Facts factsOf(Program program);

  std::shared_ptr<Facts const> facts_;
};

// One call's kernel, as whoever has kernels of a plan starts it.
struct PlanStart {
  void const* in;
  void* out;
  std::uint64_t count;  // elements of the message
  DataType type;
  ReduceOp op;
  PlanPackets packets;
  layout::PlanHandle const& plan;
  layout::WindowHandle const& inWindow;
  layout::WindowHandle const& outWindow;
};
// Kernels that have a plan's steps as code.
class PlanCode {
 public:
  virtual ~PlanCode() = default;
  // Puts the kernel of that type, operation and kind of packets into the stream.
  virtual void start(Stream const& stream, LaunchShape const& shape, PlanStart const& call) const = 0;
};

class PlanExecutor {
 public:
  // `maxBytes`: the longest message, which is one rank's part where a buffer holds a part of each rank.
  PlanExecutor(Communicator const& communicator, ExecutionPlan const& plan, std::uint64_t maxBytes);

  // Returns at once; the plan runs in stream order. Throws invalidUsage where the call does not fit the plan. With
  // `code` by that of this plan, type, operation and packets (mscclpp/jit/plan_executor.hpp makes such), else the table
  // is interpreted: ranks of one call may differ in that.
  void execute(Stream const& stream, PlanExecution const& call, PlanCode const* code = nullptr) const;

  // What its calls run with; serves one of them at a time.
  PlanContext const& context() const noexcept { return context_; }

 private:
  void check(PlanExecution const& call) const;

  ExecutionPlan plan_;
  PlanContext context_;
};

}  // namespace mscclpp::dsl
