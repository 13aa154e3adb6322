// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/schedule/scheduler.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <utility>

#include "sim/task/gpu_thread.hpp"
#include "sim/time/time_line.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::uint64_t nsPerSwitch = 20;
constexpr std::uint64_t nsPerMemoryStep = 10;
std::uint64_t valueAt(std::uintptr_t word) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(word)).load(std::memory_order_relaxed);
}

// A lane for which others of its warp wait looks again with them.
bool isAwaited(GpuThread const& thread) {
  return std::ranges::any_of(thread.warp, [](GpuThread const& lane) {
    return lane.state == TaskState::parked && lane.parkedOn == ParkReason::warp;
  });
}

// On the time line; the others are told of where more is known, or are too short to be worth a line.
void showBarrier(GpuThread const& thread, ParkReason reason, Picoseconds begin) {
  if (reason == ParkReason::clusterBarrier) showWait(thread, "waits at the cluster's barrier", begin);
  if (reason == ParkReason::blockBarrier || reason == ParkReason::namedBarrier) {
    showWait(thread, "waits at a barrier of the block", begin);
  }
}

// A cancelled task may finish what it is doing, destructors above all, but not spin for ever.
constexpr std::uint32_t stepsAfterCancel = 1u << 20;

}  // namespace

void Scheduler::restart(std::uint64_t seed, double preemption) {
  random_.seed(seed);
  ready_.clear();
  polling_.clear();
  held_.clear();
  late_.clear();
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
  time_ = nullptr;
  direct(nullptr);
}

template <class Due>
bool Scheduler::releaseLate(Due const& isDue) {
  auto const rest = std::stable_partition(late_.begin(), late_.end(), isDue);
  std::vector<Task*> const due(late_.begin(), rest);
  late_.erase(late_.begin(), rest);
  for (auto* const task : due) begin(*task);
  return !due.empty();
}

void Scheduler::direct(Director* director, RunLimits const& limits) {
  director_ = director;
  limits_ = limits;
  last_ = 0;
  lastPoint_ = 0;
  lastCanGoOn_ = false;
  faults_ = nullptr;
  releaseLate([](Task const*) { return true; });
  if (director == nullptr) return;  // the run is being ended: why and how it went is still asked for
  cut_ = Cut::none;
  decisions_.clear();
  words_.clear();
  lastChange_ = lastUnknownChange_ = progress_;
  lastChangeStep_ = stepsNow();
  warpParks_ = 1;
  write_ = {};
}

void Scheduler::keepTime(VirtualTime* time) {
  if (time_ != nullptr) {
    for (Task* task : time_->takeAll()) (task->state == TaskState::polling ? polling_ : ready_).push_back(task);
  }
  time_ = time;
}

std::uint32_t Scheduler::below(std::uint32_t limit) {
  return static_cast<std::uint32_t>(((random_() >> 32) * limit) >> 32);
}

std::uint32_t Scheduler::nextPreemption() { return preemptionSpan_ == 0 ? 0 : 1 + below(preemptionSpan_); }

void Scheduler::add(Task& task) {
  task.id = nextId_++;
  if (time_ != nullptr) return time_->ready(task);
  if (director_ != nullptr) task.name = task.key();
  if (faults_ != nullptr && task.isGpuThread() && !static_cast<GpuThread&>(task).ofHost && faults_->holds(task.name)) {
    late_.push_back(&task);
    return;
  }
  begin(task);
}

void Scheduler::begin(Task& task) {
  ready_.push_back(&task);
  if (director_ != nullptr) director_->woken(task, ParkReason::none);
}

void Scheduler::releaseCancelled() {
  releaseLate([](Task const* task) { return task->cancelled; });
}

void Scheduler::makeReady(Task& task) {
  auto const parkedOn = std::exchange(task.parkedOn, ParkReason::none);
  task.state = TaskState::ready;
  // Lanes that have met have changed nothing: those that only look at LL128 packets meet for ever.
  if (parkedOn != ParkReason::warp) noteStep();
  if (time_ != nullptr) return time_->ready(task);
  ready_.push_back(&task);
  if (director_ == nullptr) return;
  if (parkedOn != ParkReason::warp) lastChange_ = progress_;
  director_->woken(task, parkedOn);
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
  if (time_ != nullptr) return time_->next();
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

bool Scheduler::worthALook(Task const& task) const {
  if (task.evaluatedAt == 0 || task.sawOldAt != 0) return true;
  if (!task.isGpuThread()) return task.evaluatedAt != progress_;
  if (lastUnknownChange_ > task.evaluatedAt) return true;
  if (!task.looks.known()) return lastChange_ > task.evaluatedAt;
  return task.lookIsOld;
}

bool Scheduler::lookedTooEarly(Task const& task) const {
  if (!task.isGpuThread() || task.evaluatedAt == 0) return false;
  return task.sawOldAt != 0 || (task.looks.known() && task.lookIsOld);
}

Candidate Scheduler::undisturbed() const {
  using enum Candidate::Queue;
  // Who goes on for long may wait by a loop of its own for somebody who waits here.
  if (!ready_.empty() && !tookLong()) return {ready, lastCanGoOn_ ? ready_.size() - 1 : 0};
  auto const it = std::ranges::find_if(polling_, [this](Task const* task) { return worthALook(*task); });
  if (it == polling_.end()) return ready_.empty() ? Candidate{} : Candidate{ready, 0};
  return {polling, static_cast<std::size_t>(it - polling_.begin())};
}

Task* Scheduler::pickDirected() {
  if (cut_ != Cut::none) return nullptr;
  auto const at = [this](Candidate const& c) {
    return c.queue == Candidate::Queue::ready ? ready_[c.index] : polling_[c.index];
  };
  auto const chosen = director_->pick(*this, last_, lastPoint_);
  if (chosen.queue == Candidate::Queue::none) return nullptr;
  auto const usual = undisturbed();
  Task* task = at(chosen);
  if (usual.queue != chosen.queue || usual.index != chosen.index) {
    decisions_.push_back({last_, lastPoint_, false, task->name});
  }
  auto& queue = chosen.queue == Candidate::Queue::ready ? ready_ : polling_;
  queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(chosen.index));
  return task;
}

bool Scheduler::step() {
  Task* task = director_ == nullptr ? pick() : pickDirected();
  if (task == nullptr) return false;
  bool const goesOn = lastCanGoOn_ && task->name == last_ && !tookLong();  // as if it had not been interrupted
  if (director_ != nullptr && task->state == TaskState::polling) {
    task->readsNewest = std::exchange(task->sawOldAt, 0);
  }
  running_ = task;
  if (time_ != nullptr) time_->begins(*task);
  task->state = TaskState::running;
  if (!goesOn) {
    ++switches_;
    virtualNs_ += nsPerSwitch;
    sliceSteps_ = 0;
    record(task->id);
  }
  try {
    task->resume();
  } catch (std::exception const& e) {
    task->state = TaskState::done;
    task->failedToStart(e.what());
  }
  running_ = nullptr;
  if (time_ != nullptr) time_->stops(*task);
  if (director_ != nullptr) settle(*task);
  if (task->state == TaskState::done) {
    noteStep();
    task->ended();  // may delete the task
  }
  return true;
}

void Scheduler::settle(Task& task) {
  if (!task.atAccess) ++task.points;  // an interrupted one has counted its access
  last_ = task.name;
  lastPoint_ = task.points;
  lastCanGoOn_ = task.atAccess;
  bool const done = task.state == TaskState::done;
  if (!task.isGpuThread() && task.state != TaskState::polling) {
    noteProgress();  // host code may have written anywhere
  } else if (!task.isGpuThread() && task.evaluatedAt == 0) {
    noteStep();
    lastUnknownChange_ = lastChange_ = progress_;  // as well, but a host that only asks again and again changes nothing
  } else if (done) {
    lastChange_ = progress_;
    lastChangeStep_ = stepsNow();
  }
  if (stepsNow() - lastChangeStep_ > limits_.liveLockSteps) cut(Cut::liveLock);
  director_->stopped(task);
}

void Scheduler::park(Task& task) {
  task.state = TaskState::parked;
  if (task.parkedOn != ParkReason::warp) noteStep();
  if (director_ != nullptr) {
    if (task.parkedOn == ParkReason::warp) {
      ++warpParks_;
      // The lanes of a warp look together: those that still wait for a look of their own come now.
      for (auto& lane : static_cast<GpuThread&>(task).warp) {
        if (lane.state == TaskState::polling) lane.evaluatedAt = 0;
      }
      task.looks.forgetWhich();
    } else {
      task.looks.clear();
    }
  }
  if (time_ != nullptr && task.parkedOn == ParkReason::warp) {
    // The lanes of a warp look together.
    for (auto& lane : static_cast<GpuThread&>(task).warp) {
      if (lane.state == TaskState::polling) time_->wake(lane, task.time.now);
    }
  }
  auto const reason = task.parkedOn;
  auto const begin = task.time.now;
  task.suspend();
  task.parkedOn = ParkReason::none;
  if (isShown(task)) showBarrier(static_cast<GpuThread&>(task), reason, begin);
}

std::uint64_t Scheduler::yieldPoll(Task& task, std::uint64_t since) {
  task.evaluatedAt = since;
  task.state = TaskState::polling;
  if (time_ != nullptr) return yieldPollTimed(task);
  if (director_ != nullptr) return yieldPollDirected(task);
  if (since == 0) {
    noteStep();
  } else if (since == progress_) {
    ++looksInVain_;
  }
  polling_.push_back(&task);
  task.suspend();
  return progress_;
}

void Scheduler::yieldReady(Task& task) {
  task.state = TaskState::ready;
  if (time_ != nullptr) {
    time_->giveWay(task);
  } else {
    ready_.push_back(&task);
  }
  task.suspend();
}

void Scheduler::spin(Task& task, std::uint32_t reads) {
  memorySteps_ += reads;
  if (task.cancelled) task.abandon();
  if (memorySteps_ > limits_.steps) cut(Cut::stepLimit);
  if (stepsNow() - lastChangeStep_ > limits_.liveLockSteps) cut(Cut::liveLock);
  sliceSteps_ = longestSlice;
  yieldReady(task);
}

std::uint64_t Scheduler::yieldPollTimed(Task& task) {
  auto& time = *time_;  // the run may end meanwhile
  time.sleep(task);
  if (task.isGpuThread()) {
    if (isAwaited(static_cast<GpuThread&>(task))) time.wake(task, task.time.now);
  }
  task.suspend();
  time.woken(task);
  return progress_;
}

std::uint64_t Scheduler::yieldPollDirected(Task& task) {
  if (task.isGpuThread()) {
    // Already the first look tells what the condition depends on.
    if (task.evaluatedAt == 0 && task.looks.known()) task.evaluatedAt = task.looks.begin()->progress;
    // One that does not come, for it waits by itself, is not asked again and again, or its wait would never expire.
    bool const cameInVain = faults_ != nullptr && faults_->struck() && task.awaitedAt == warpParks_;
    if (isAwaited(static_cast<GpuThread&>(task)) && !cameInVain) {
      task.evaluatedAt = 0;
      task.awaitedAt = warpParks_;
    }
    if (task.poll != nullptr && task.poll->watch != nullptr) {
      task.looks.add(reinterpret_cast<std::uintptr_t>(&task.poll->watch->abort), progress_);
    }
  }
  task.lookIsOld = false;
  bool const watches = task.isGpuThread() && task.looks.known();
  if (watches) {
    for (auto const& look : task.looks) {
      auto& word = words_[look.address];
      if (word.writtenAt > look.progress) task.lookIsOld = true;
      word.watchers.push_back(&task);
    }
  }
  polling_.push_back(&task);
  task.suspend();
  if (watches) {
    for (auto const& look : task.looks) {
      auto& watchers = words_[look.address].watchers;
      *std::ranges::find(watchers, &task) = watchers.back();
      watchers.pop_back();
    }
  }
  task.looks.clear();
  return progress_;
}

std::uint32_t Scheduler::choose(ChoiceKind kind, std::uint32_t options) {
  constexpr std::uint32_t oneIn = 8;
  if (options < 2 || time_ != nullptr) return 0;
  if (director_ != nullptr) {
    if (running_ == nullptr || running_->cancelled) return 0;
    bool const stale = kind == ChoiceKind::staleRead;
    if (stale && running_->readsNewest == running_->pending.address) return 0;
    ++running_->points;
    auto const option = director_->choose(*running_, kind, options);
    if (option != 0) decisions_.push_back({running_->name, running_->points, true, option});
    if (option != 0 && stale) running_->sawOldAt = running_->pending.address;
    return option;
  }
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
  if (director_ != nullptr) return directedStep(task, access);
  if (time_ != nullptr) {
    auto& thread = static_cast<GpuThread&>(task);
    if (!access.line) time_->issue(thread, access);  // lines: when their warp has met
    if (++sliceSteps_ >= longestSlice || time_->isLate(task)) yieldReady(task);
    if (!access.line && time_ != nullptr) time_->access(thread, access);
    if (write) noteStep();
    return;
  }
  undirectedStep(task, write && access.address != 0);  // where threads have met, nothing was written
}

void Scheduler::undirectedStep(Task& task, bool write) {
  bool const preempt = preemptionSpan_ != 0 && --untilPreemption_ == 0;
  if (preempt) untilPreemption_ = nextPreemption();
  if (preempt || ++sliceSteps_ >= longestSlice) yieldReady(task);
  if (write) noteStep();
}

void Scheduler::hostStep(Task& task, Access const& access) {
  ++memorySteps_;
  virtualNs_ += nsPerMemoryStep;
  record(access.writes() ? ~task.id : task.id);
  if (task.cancelled) {
    if (++task.cancelledSteps > stepsAfterCancel) task.abandon();
  } else if (director_ != nullptr) {
    directedStep(task, access);
  } else if (time_ == nullptr) {
    undirectedStep(task, access.writes());
  }
}

void Scheduler::directedStep(Task& task, Access const& access) {
  ++task.points;
  task.pending = access;
  if (write_.by != nullptr && valueAt(write_.address) != write_.before) {
    lastChangeStep_ = stepsNow();
    write_.by = nullptr;
  } else if (write_.by == &task) {
    write_.by = nullptr;  // the same value again
  }
  if (memorySteps_ > limits_.steps) cut(Cut::stepLimit);
  if (stepsNow() - lastChangeStep_ > limits_.liveLockSteps) cut(Cut::liveLock);
  if (cut_ != Cut::none || tookLong() || !director_->goesOn(*this, task, access)) {
    task.atAccess = true;
    yieldReady(task);
    task.atAccess = false;
    if (task.cancelled) return;
  }
  ++sliceSteps_;
  if (access.kind == AccessKind::load) {
    task.looks.add(access.address, progress_);
    if (access.bytes > 8) task.looks.forgetWhich();
    return;
  }
  task.looks.clear();
  task.sawOldAt = task.readsNewest = 0;
  if (!access.writes()) return;
  noteStep();
  if (access.address == 0) return;  // a barrier
  lastChange_ = progress_;
  auto const word = access.address & ~std::uintptr_t{7};
  for (auto w = word; w < access.address + access.bytes; w += 8) {
    auto& written = words_[w];
    written.writtenAt = progress_;
    for (Task* watcher : written.watchers) watcher->lookIsOld = true;
  }
  write_ = {&task, word, valueAt(word)};
}

Scheduler::Expiring Scheduler::nextToExpire() const {
  Expiring first;
  for (auto* const task : polling_) {
    std::uint64_t at = 0;
    if (!task->isGpuThread()) {
      at = task->hostWaitEnds;
    } else if (task->poll != nullptr && task->poll->watch != nullptr) {
      auto const limit = std::atomic_ref(task->poll->watch->limitNs).load(std::memory_order_relaxed);
      if (limit != 0) at = task->poll->startNs + limit;
      first.kernelsToo = first.kernelsToo || limit != 0;
    }
    if (at == 0 || (first.task != nullptr && at >= first.ends)) continue;
    first.task = task;
    first.ends = at;
  }
  return first;
}

void Scheduler::expire(Expiring const& wait) {
  virtualNs_ = std::max(virtualNs_, wait.ends);
  (wait.task->isGpuThread() ? wait.task->poll->expired : wait.task->hostWaitExpired) = true;
  noteProgress();
}

bool Scheduler::expireWait() {
  auto const first = nextToExpire();
  if (first.task == nullptr) return false;
  expire(first);
  return true;
}

bool Scheduler::outlastFault() {
  if (faults_ == nullptr || !faults_->struck()) return false;
  auto const first = nextToExpire();
  if (!first.kernelsToo && releaseLate([](Task const*) { return true; })) return true;
  if (first.task == nullptr) return false;
  expire(first);
  return true;
}

void Scheduler::noteGivenUp() {
  if (faults_ == nullptr) return;
  faults_->noteGivenUp();
  releaseLate([this](Task const* task) { return faults_->isDue(task->name); });
}

void Scheduler::cut(Cut why) {
  if (director_ != nullptr && cut_ == Cut::none) cut_ = why;
}

}  // namespace mscclpp::sim
