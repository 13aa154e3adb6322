// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A thread of a kernel, as the scheduler and the clocks know it; what it does is its kernel's (machine/kernel.cpp).
#pragma once

#include <span>

#include "mscclpp/sim/backend/thread_context.hpp"
#include "sim/task/task.hpp"

namespace mscclpp::sim {

class Block;

class GpuThread final : public Task {
 public:
  GpuThread() : Task(true) {}

  ThreadContext context;
  Block* block = nullptr;
  bool ofHost = false;        // a thread of the host that the scheduler runs like a kernel's
  std::span<GpuThread> warp;  // its lanes, this thread among them
  // Of a timed run (time/time_line.hpp): where it is shown, since when it runs, and since when it waits or did last.
  int lane = 0;
  Picoseconds began = 0;
  Picoseconds waitBegan = 0;

  TaskKey key() const override;
  void ended() override;
  void failedToStart(char const* why) override;

 private:
  void body() noexcept override;
  StackPool& stacks() override;
};

}  // namespace mscclpp::sim
