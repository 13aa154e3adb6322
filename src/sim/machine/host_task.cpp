// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/host_task.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/machine/rank_run.hpp"

namespace mscclpp::sim {
namespace {

// Looks in vain, after which code lets others run, and those after which it is taken to wait; words that it may go
// round.
constexpr unsigned looksOfAsking = 2;
constexpr unsigned looksOfWait = 50'000;
constexpr std::size_t mostWords = 8;

}  // namespace

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

bool HostTask::mayLook(std::uintptr_t address) {
  if (cancelled) return ++cancelledSteps <= looksOfWait;
  auto const known = std::ranges::find(seen_, address, &Seen::address);
  if (asks || known == seen_.end() || !known->thisRound) return true;
  // A round ends where a word comes again. Those that were not part of it are no part of the loop.
  auto& scheduler = Machine::instance().scheduler();
  if (inVain_ >= looksOfAsking) {
    auto& machine = Machine::instance();
    waitsFor_ =
        fmt::format("a change of {}, where it finds {} again and again",
                    machine.followsMemory(address, address + 1) ? machine.placeOf(address) : "a word of its own memory",
                    known->value);
    hostWait = waitsFor_.c_str();
    scheduler.yieldPoll(*this, inVain_ >= looksOfWait ? roundBegan_ : 0);
    hostWait = nullptr;
  }
  std::erase_if(seen_, [](Seen const& seen) { return !seen.thisRound; });
  for (auto& seen : seen_) seen.thisRound = false;
  roundBegan_ = scheduler.progress();
  return !cancelled;
}

void HostTask::looked(std::uintptr_t address, std::uint64_t value) {
  if (asks) return;
  auto const known = std::ranges::find(seen_, address, &Seen::address);
  if (known == seen_.end() || known->value != value) {
    inVain_ = 0;
    if (known != seen_.end()) {
      seen_.erase(known);
    } else if (seen_.size() == mostWords) {
      seen_.clear();
    }
    seen_.push_back({address, value, true});
  } else {
    ++inVain_;
    known->thisRound = true;
  }
}

// One that leaves the word as it was is a look.
void HostTask::updated(std::uintptr_t address, unsigned bytes, std::uint64_t found, WordUpdate const& update) {
  std::uint64_t value = 0;
  if (!update.apply(found, bytes, value) || value == found) return looked(address, found);
  acted();
  Machine::instance().scheduler().noteProgress();
}

// A look that has let others run already is no further step.
void HostTask::step(Access const& access) {
  if (!asks && inVain_ < looksOfAsking) Machine::instance().scheduler().hostStep(*this, access);
}

std::uint64_t loadStep(HostTask& self, Access const& access, void const* code) {
  self.step(access);
  auto& observer = *Machine::instance().observer();
  auto const value = observer.load(*self.agent, access, observer.siteOf(*self.agent, code));
  self.looked(access.address, value);
  return value;
}

void storeStep(HostTask& self, Access const& access, std::uint64_t value, void const* code) {
  self.acted();
  self.step(access);
  auto& observer = *Machine::instance().observer();
  observer.store(*self.agent, access, value, observer.siteOf(*self.agent, code));
  Machine::instance().scheduler().noteProgress();
}

std::uint64_t updateStep(HostTask& self, Access const& access, WordUpdate const& update, void const* code) {
  self.step(access);
  auto& observer = *Machine::instance().observer();
  auto const found = observer.update(*self.agent, access, update, observer.siteOf(*self.agent, code));
  self.updated(access.address, static_cast<unsigned>(access.bytes), found, update);
  return found;
}

void fenceStep(HostTask& self, Order order, Scope scope, void const* code) {
  Access const fence{.kind = AccessKind::fence, .order = order, .scope = scope};
  auto& observer = *Machine::instance().observer();
  observer.fence(*self.agent, fence, observer.siteOf(*self.agent, code));
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
  auto const isReady = [&] {
    bool const before = std::exchange(task.asks, true);
    struct Restore {
      HostTask& task;
      bool before;
      ~Restore() { task.asks = before; }
    } const restore{task, before};
    return ready();
  };
  task.acted();
  while (!isReady()) {
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
