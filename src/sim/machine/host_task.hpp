// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host code of one rank in a deterministic run.
#pragma once

#include <chrono>
#include <exception>
#include <functional>

#include "sim/task/task.hpp"

namespace mscclpp::sim {

class HostTask final : public Task {
 public:
  HostTask(int rank, StackPool& stacks, std::function<void()> main);
  int rank() const { return rank_; }
  TaskKey key() const override;
  std::exception_ptr const& failure() const { return failure_; }
  bool hasFreedByException = false;  // memory that others may use
  void ended() override;
  void failedToStart(char const* why) override;

 private:
  void body() noexcept override;
  StackPool& stacks() override { return stacks_; }
  int rank_;
  StackPool& stacks_;
  std::function<void()> main_;
  std::exception_ptr failure_;
};

// The rank that is running; null elsewhere.
HostTask* currentHostTask() noexcept;
// Lets the other tasks run until `ready`; throws Unwind when the run ends first, or returns false where it must not
// throw because an exception is already on its way.
// Also false once the limit has passed, which happens only where waits expire (RunOptions).
bool hostTaskWait(HostTask& task, char const* what, std::function<bool()> const& ready,
                  std::chrono::nanoseconds limit = {});

}  // namespace mscclpp::sim
