// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/host_task.hpp"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/machine/rank_run.hpp"

namespace mscclpp::sim {

HostTask::HostTask(int rank, StackPool& stacks, std::function<void()> main)
    : Task(false), rank_(rank), stacks_(stacks), main_(std::move(main)) {
  if (auto* const observer = Machine::instance().observer()) agent = &observer->addHost(rank);
}

void HostTask::body() noexcept {
  if (cancelled) return;
  try {
    main_();
  } catch (Unwind const&) {
  } catch (...) {
    failure_ = std::current_exception();
  }
}

TaskKey HostTask::key() const { return keyOfHost(rank_); }

void HostTask::ended() {
  if (failure_) Machine::instance().run()->noteFailure(*this);
}

void HostTask::failedToStart(char const* why) {
  failure_ = std::make_exception_ptr(
      Error(ErrorCode::systemError, fmt::format("the host code of rank {} could not start: {}", rank_, why)));
}

HostTask* currentHostTask() noexcept {
  auto* task = currentTask();
  return task == nullptr || task->isGpuThread() ? nullptr : static_cast<HostTask*>(task);
}

bool hostTaskWait(HostTask& task, char const* what, std::function<bool()> const& ready,
                  std::chrono::nanoseconds limit) {
  auto& scheduler = Machine::instance().scheduler();
  std::uint64_t since = 0;
  // What the others did while the run was being ended must not look like success.
  auto const checkCancelled = [&task] {
    if (task.cancelled && std::uncaught_exceptions() == 0) throw Unwind{};
  };
  checkCancelled();
  auto const ends = limit.count() > 0 ? scheduler.virtualNs() + static_cast<std::uint64_t>(limit.count()) : 0;
  while (!ready()) {
    if (task.cancelled || std::exchange(task.hostWaitExpired, false)) return false;
    task.hostWait = what;
    task.hostWaitEnds = ends;
    since = scheduler.yieldPoll(task, since);
    task.hostWait = nullptr;
    task.hostWaitEnds = 0;
    checkCancelled();
  }
  task.hostWaitExpired = false;
  return true;
}

}  // namespace mscclpp::sim
