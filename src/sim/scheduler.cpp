// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

namespace mscclpp::sim {
namespace {

constexpr std::uint64_t nsPerSwitch = 20;
constexpr std::uint64_t nsPerMemoryStep = 10;
// A kernel that spins by itself on a load must not keep everybody else from running.
constexpr std::uint32_t longestSlice = 4096;
// Polls wait until no task is ready, except for one turn in about this many, so that a waiter may also go on early.
constexpr std::uint32_t turnsBetweenPolls = 16;
// A cancelled task may finish what it is doing, destructors above all, but not spin for ever.
constexpr std::uint32_t stepsAfterCancel = 1u << 20;

}  // namespace

void Scheduler::restart(std::uint64_t seed, double preemption) {
  random_.seed(seed);
  ready_.clear();
  polling_.clear();
  held_.clear();
  progress_ = 1;
  looksInVain_ = 0;
  // Intervals uniform in [1, 2/p - 1] have the mean 1/p and need no floating point, hence replay on any machine.
  preemptionSpan_ =
      preemption <= 0 ? 0 : static_cast<std::uint32_t>(std::max(1.0, std::min(1e9, std::round(2 / preemption) - 1)));
  untilPreemption_ = nextPreemption();
  untilPollTurn_ = 1;
  nextId_ = 1;
  switches_ = memorySteps_ = 0;
  trace_ = 0xcbf29ce484222325u;
  virtualNs_ = 1;
}

std::uint32_t Scheduler::below(std::uint32_t limit) {
  return static_cast<std::uint32_t>(((random_() >> 32) * limit) >> 32);
}

std::uint32_t Scheduler::nextPreemption() { return preemptionSpan_ == 0 ? 0 : 1 + below(preemptionSpan_); }

void Scheduler::add(Task& task) {
  task.id = nextId_++;
  ready_.push_back(&task);
}

void Scheduler::makeReady(Task& task) {
  task.state = TaskState::ready;
  task.parkedOn = ParkReason::none;
  ready_.push_back(&task);
  noteProgress();
}

void Scheduler::holdHostTasks() {
  auto const hold = [this](Task* task) {
    if (!task->isGpuThread()) held_.push_back(task);
    return !task->isGpuThread();
  };
  std::erase_if(ready_, hold);
  std::erase_if(polling_, hold);
}

void Scheduler::releaseHostTasks() {
  for (Task* task : std::exchange(held_, {})) makeReady(*task);
}

Task* Scheduler::pick() {
  auto takePoll = [this] {
    Task* task = polling_.front();
    polling_.pop_front();
    return task;
  };
  if (!ready_.empty()) {
    if (!polling_.empty() && polling_.front()->evaluatedAt != progress_ && --untilPollTurn_ == 0) {
      untilPollTurn_ = 1 + below(2 * turnsBetweenPolls);
      return takePoll();
    }
    auto const index = below(static_cast<std::uint32_t>(ready_.size()));
    Task* task = ready_[index];
    ready_[index] = ready_.back();
    ready_.pop_back();
    return task;
  }
  if (polling_.empty()) return nullptr;
  if (looksInVain_ >= polling_.size()) {
    if (std::ranges::all_of(polling_, [this](Task* task) { return task->evaluatedAt == progress_; })) return nullptr;
    looksInVain_ = 0;
  }
  return takePoll();
}

bool Scheduler::step() {
  Task* task = pick();
  if (task == nullptr) return false;
  task->state = TaskState::running;
  ++switches_;
  virtualNs_ += nsPerSwitch;
  sliceSteps_ = 0;
  record(task->id);
  try {
    task->resume();
  } catch (std::exception const& e) {
    task->state = TaskState::done;
    task->failedToStart(e.what());
  }
  if (task->state == TaskState::done) {
    noteProgress();
    task->ended();  // may delete the task
  }
  return true;
}

void Scheduler::park(Task& task) {
  task.state = TaskState::parked;
  noteProgress();
  task.suspend();
  task.parkedOn = ParkReason::none;
}

std::uint64_t Scheduler::yieldPoll(Task& task, std::uint64_t since) {
  task.evaluatedAt = since;
  task.state = TaskState::polling;
  if (since == 0) {
    noteProgress();
  } else if (since == progress_) {
    ++looksInVain_;
  }
  polling_.push_back(&task);
  task.suspend();
  return progress_;
}

void Scheduler::yieldReady(Task& task) {
  task.state = TaskState::ready;
  ready_.push_back(&task);
  task.suspend();
}

std::uint32_t Scheduler::choose(ChoiceKind kind, std::uint32_t options) {
  constexpr std::uint32_t oneIn = 8;
  if (options < 2) return 0;
  if (kind != ChoiceKind::half && below(oneIn) != 0) return 0;
  return below(options);
}

void Scheduler::memoryStep(Task& task, Access const& access) {
  bool const write = access.writes();
  ++memorySteps_;
  virtualNs_ += nsPerMemoryStep;
  record(write ? ~task.id : task.id);
  if (task.cancelled) {
    if (++task.cancelledSteps > stepsAfterCancel && std::uncaught_exceptions() == 0) throw Unwind{};
    if (write) noteProgress();
    return;
  }
  bool const preempt = preemptionSpan_ != 0 && --untilPreemption_ == 0;
  if (preempt) untilPreemption_ = nextPreemption();
  if (preempt || ++sliceSteps_ >= longestSlice) yieldReady(task);
  if (write) noteProgress();
}

}  // namespace mscclpp::sim
