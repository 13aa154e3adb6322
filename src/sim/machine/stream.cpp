// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/time/time_line.hpp"

namespace mscclpp::sim {

Kernel* kernelOf(Work const& work) {
  auto const* const kernel = std::get_if<std::shared_ptr<Kernel>>(&work.what);
  return kernel == nullptr ? nullptr : kernel->get();
}

std::string Stream::takeFailure() {
  std::unique_lock const lock(failureMutex_);
  return std::exchange(failure_, {});
}

void Stream::forgetOrder() {
  clock_ = {};
  agent_ = nullptr;
}

void Stream::complete() {
  machine_.noteCompleted();  // first, so that the machine has no work where no stream has any
  completed_.fetch_add(1, std::memory_order_release);
}

void Stream::reach(StreamMark& mark) {
  mark.reached = true;
  mark.clock = clock_;
  mark.time = time_;
  if (mark.waiter != nullptr) std::exchange(mark.waiter, nullptr)->advance();
}

void Stream::drop() {
  std::vector<std::shared_ptr<StreamMark>> marks;
  std::erase_if(queue_, [&](Work const& work) {
    if (auto const* const kernel = kernelOf(work); kernel != nullptr && kernel->started()) return false;
    if (auto const* const reach = std::get_if<ReachMark>(&work.what)) marks.push_back(reach->mark);
    complete();
    return true;
  });
  for (auto const& work : queue_) kernelOf(work)->cancel();
  for (auto const& mark : marks) reach(*mark);
}

void Stream::discard() {
  drop();
  advance();
}

void Stream::advance() {
  while (!queue_.empty()) {
    auto const work = queue_.front();
    if (!std::visit([&](auto const& what) { return carryOut(work, what); }, work.what)) return;
  }
  machine_.noteIdle();
}

bool Stream::carryOut(Work const& work, ReachMark const& what) {
  queue_.pop_front();
  clock_.join(work.clock);
  reach(*what.mark);
  complete();
  machine_.scheduler().noteProgress();
  return true;
}

bool Stream::carryOut(Work const& work, AwaitMark const& what) {
  if (!what.mark->reached) {
    what.mark->waiter = this;
    return false;
  }
  queue_.pop_front();
  clock_.join(work.clock);
  clock_.join(what.mark->clock);
  time_ = std::max(time_, what.mark->time);
  complete();
  machine_.scheduler().noteProgress();
  return true;
}

bool Stream::carryOut(Work const& work, CopyWork const& copy) {
  auto& scheduler = machine_.scheduler();
  if (auto* const observer = machine_.observer()) {
    if (agent_ == nullptr) agent_ = &observer->addStream(device_);
    observer->acquire(*agent_, clock_);
    observer->acquire(*agent_, work.clock);
    observer->note(*agent_, unorderedAccess(copy.src, copy.bytes, false), 0);
    observer->note(*agent_, unorderedAccess(copy.dst, copy.bytes, true), 0);
    clock_.join(observer->release(*agent_));
  }
  if (auto* const time = scheduler.time()) {
    auto const begin = std::max({time_, work.submitTime, time->now()});
    time_ = time->copy(device_, copy.dst, copy.bytes, begin);
    if (isTraced()) showCopy(device_, copy.bytes, begin, time_);
  }
  {
    Unwatched const unwatched;  // who started the copy does not do it
    std::memmove(copy.dst, copy.src, copy.bytes);
  }
  queue_.pop_front();
  complete();
  scheduler.noteProgress();
  return true;
}

bool Stream::carryOut(Work const& work, std::shared_ptr<Kernel> const& kernel) {
  if (!kernel->started()) kernel->start(nullptr, work.clock, work.submitTime);
  if (!kernel->hasEnded()) {
    overlap();
    return false;
  }
  clock_.join(kernel->endClock());
  time_ = std::max(time_, kernel->endTime());
  if (!kernel->failure().empty()) {
    {
      std::unique_lock const lock(failureMutex_);
      if (failure_.empty()) {
        failure_ =
            fmt::format("kernel \"{}\" failed on simulated device {}: {}", kernel->name(), device_, kernel->failure());
      }
    }
    drop();  // what was to follow would work on wrong data
  }
  queue_.pop_front();
  complete();
  auto& scheduler = machine_.scheduler();
  scheduler.noteStep();
  if (auto* const time = scheduler.time()) time->wakeHosts();
  return true;
}

// Kernels that need not wait for the end of the one ahead.
void Stream::overlap() {
  for (std::size_t i = 1; i < queue_.size(); ++i) {
    auto const* const next = std::get_if<std::shared_ptr<Kernel>>(&queue_[i].what);
    auto const& before = std::get<std::shared_ptr<Kernel>>(queue_[i - 1].what);
    if (next == nullptr || !(*next)->shape().overlapPrevious || !before->allowsNext()) break;
    if (!(*next)->started()) (*next)->start(before, queue_[i].clock, queue_[i].submitTime);
  }
}

}  // namespace mscclpp::sim
