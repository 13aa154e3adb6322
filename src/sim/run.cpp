// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/run.hpp"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "machine.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/wait.hpp"
#include "mscclpp/sim/launch.hpp"

namespace mscclpp::sim {
namespace {

bool waitInFiber(std::function<bool()> const& ready, std::chrono::nanoseconds limit) {
  auto* task = currentHostTask();
  if (task == nullptr) return ready();
  if (limit > std::chrono::nanoseconds::zero())
    return hostTaskWait(*task, "host wait (bootstrap or communicator)", ready);
  if (!task->cancelled) Machine::instance().scheduler().yieldPoll(*task, 0);
  return ready();
}

class Run {
 public:
  Run(RunOptions const& options, std::function<void(RankContext&)> const& rankMain)
      : machine_(Machine::instance()), options_(options), hostStacks_(options.hostStackBytes * stackFactor) {
    machine_.beginRun(options.ranks, options.seed, options.preemption);
    previousWait_ = threadHostWait();
    setThreadHostWait(&waitInFiber);
    for (int rank = 0; rank < options.ranks; ++rank) {
      auto main = [rank, ranks = options.ranks, &rankMain] {
        RankContext context(rank, ranks);
        rankMain(context);
      };
      machine_.hostTasks().push_back(std::make_unique<HostTask>(rank, hostStacks_, std::move(main)));
    }
  }

  ~Run() {
    setThreadHostWait(previousWait_);
    machine_.endRun();
  }

  RunSummary execute() {
    auto& scheduler = machine_.scheduler();
    for (auto& task : machine_.hostTasks()) scheduler.add(*task);
    std::exception_ptr failure;
    try {
      stepToEnd();
      if (auto const failures = machine_.takeFailures(); !failures.empty()) {
        throw Error(ErrorCode::deviceError, fmt::format("kernels failed in a simulated run (seed {}) and no rank asked "
                                                        "with synchronize:\n{}",
                                                        options_.seed, failures));
      }
    } catch (...) {
      failure = std::current_exception();
      unwind();
    }
    if (failure) std::rethrow_exception(failure);
    return {options_.seed, scheduler.switches(), scheduler.memorySteps(), scheduler.trace()};
  }

 private:
  void stepToEnd() {
    auto const deadline = std::chrono::steady_clock::now() + options_.wallLimit;
    std::size_t seenEnded = 0;
    for (std::uint64_t steps = 1;; ++steps) {
      bool const went = machine_.scheduler().step();
      if (seenEnded != machine_.hostTasksEnded()) {
        seenEnded = machine_.hostTasksEnded();
        for (auto const& task : machine_.hostTasks()) {
          if (task->failure()) std::rethrow_exception(task->failure());
        }
      }
      if (!went) {
        auto const waiters = machine_.waiters();
        if (waiters.empty()) return;
        throw Error(ErrorCode::timeout,
                    fmt::format("dead-lock in a simulated run (seed {}, after {} switches): nobody can go on\n{}{}"
                                "Run with the same seed to see it again",
                                options_.seed, machine_.scheduler().switches(), waiters, failedBefore()));
      }
      if (steps % 4096 == 0 && options_.wallLimit.count() > 0 && std::chrono::steady_clock::now() > deadline) {
        throw Error(ErrorCode::timeout,
                    fmt::format("a simulated run (seed {}) has not ended within {} s (RunOptions::wallLimit):\n{}{}"
                                "A wait that does not use the library's poll is never seen as a dead-lock",
                                options_.seed, options_.wallLimit.count(), machine_.waiters(), failedBefore()));
      }
    }
  }

  std::string failedBefore() {
    auto const failures = machine_.takeFailures();
    return failures.empty() ? failures : "  failed before:\n" + failures;
  }

  // Kernels first: their threads use memory that the ranks' code owns.
  void unwind() noexcept {
    auto& scheduler = machine_.scheduler();
    scheduler.holdHostTasks();
    machine_.discardAll();
    runCancelled();
    for (auto& task : machine_.hostTasks()) task->cancelled = true;
    scheduler.releaseHostTasks();
    runCancelled();
    machine_.discardAll();
    runCancelled();
  }

  void runCancelled() {
    while (machine_.scheduler().step()) {
    }
  }

  Machine& machine_;
  RunOptions options_;
  StackPool hostStacks_;
  HostWait previousWait_ = nullptr;
};

}  // namespace

RunSummary run(RunOptions const& options, std::function<void(RankContext&)> const& rankMain) {
  if (!rankMain) throw Error(ErrorCode::invalidUsage, "sim::run: no function to run");
  if (!(options.preemption >= 0 && options.preemption <= 1)) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("sim::run: RunOptions::preemption is {}, the range is 0 to 1", options.preemption));
  }
  if (options.hostStackBytes < 64 * 1024) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("sim::run: RunOptions::hostStackBytes is {}, it must be at least {}",
                            options.hostStackBytes, 64 * 1024));
  }
  ensureInstalled();
  return Run(options, rankMain).execute();
}

// ---- the ranks' host code
// --------------------------------------------------------------------------------------------

void HostTask::body() noexcept {
  if (cancelled) return;
  try {
    main_();
  } catch (Unwind const&) {
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void HostTask::ended() { Machine::instance().noteHostTaskEnded(); }

void HostTask::failedToStart(char const* why) {
  failure_ = std::make_exception_ptr(
      Error(ErrorCode::systemError, fmt::format("the host code of rank {} could not start: {}", rank_, why)));
}

HostTask* currentHostTask() noexcept {
  auto* task = currentTask();
  return task == nullptr || task->isGpuThread() ? nullptr : static_cast<HostTask*>(task);
}

bool hostTaskWait(HostTask& task, char const* what, std::function<bool()> const& ready) {
  auto& scheduler = Machine::instance().scheduler();
  std::uint64_t since = 0;
  // What the others did while the run was being ended must not look like success.
  auto const checkCancelled = [&task] {
    if (task.cancelled && std::uncaught_exceptions() == 0) throw Unwind{};
  };
  checkCancelled();
  while (!ready()) {
    if (task.cancelled) return false;
    task.hostWait = what;
    since = scheduler.yieldPoll(task, since);
    task.hostWait = nullptr;
    checkCancelled();
  }
  return true;
}

}  // namespace mscclpp::sim
