// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/backend/device_calls.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "mscclpp/sim/backend/poll.hpp"
#include "mscclpp/sim/backend/thread_context.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/time/time_line.hpp"

namespace mscclpp::sim {
namespace {

// The same as on a GPU: a wait that has nobody to report to.
constexpr std::uint64_t unwatchedLimitNs = 20'000'000'000;

std::uint32_t read(std::uint32_t& word) { return std::atomic_ref<std::uint32_t>(word).load(std::memory_order_relaxed); }
std::uint64_t read(std::uint64_t& word) { return std::atomic_ref<std::uint64_t>(word).load(std::memory_order_relaxed); }

}  // namespace

ThreadContext const& currentThread() { return currentGpuThread("a thread index or another device function").context; }

bool insideKernel() noexcept {
  auto* task = currentTask();
  return task != nullptr && task->isGpuThread();
}

unsigned syncBlock() {
  auto& self = currentGpuThread("syncBlock");
  return self.block->barrier(self);
}

unsigned syncBarrier(unsigned id, unsigned threads) {
  auto& self = currentGpuThread("syncBarrier");
  unsigned const largest = (self.context.threads + lanesPerWarp - 1) / lanesPerWarp * lanesPerWarp;
  if (id == 0 || id >= namedBarriers) {
    failKernel(self, fmt::format("there is no barrier {}; the numbers are 1 to {}", id, namedBarriers - 1));
  }
  if (threads == 0 || threads % lanesPerWarp != 0 || threads > largest) {
    failKernel(self, fmt::format("barrier {} for {} threads; the count must be a multiple of {} up to the block's {}",
                                 id, threads, lanesPerWarp, largest));
  }
  return self.block->barrier(self, id, threads);
}

void syncCluster() {
  auto& self = currentGpuThread("syncCluster");
  self.block->kernel().clusterBarrier(self);
}

void arriveAtCluster() {
  auto& self = currentGpuThread("arriveAtCluster");
  self.block->kernel().arriveAtCluster(self);
}

void awaitCluster() {
  auto& self = currentGpuThread("awaitCluster");
  if (self.clusterArrivals == 0) failKernel(self, "a thread awaits its cluster, at which it has not arrived");
  self.block->kernel().awaitCluster(self);
}

void syncWarp(unsigned mask) {
  auto& self = currentGpuThread("syncWarp");
  WarpRequest request;
  self.block->rendezvous(self, request, mask);
}

void shuffle(void const* in, void* out, std::size_t bytes, unsigned lane, unsigned mask) {
  auto& self = currentGpuThread("shuffle");
  WarpRequest request;
  request.operation = WarpOperation::shuffle;
  request.lane = lane;
  request.in = in;
  request.out = out;
  request.bytes = bytes;
  self.block->rendezvous(self, request, mask);
}

unsigned ballot(bool predicate, unsigned mask) {
  auto& self = currentGpuThread("ballot");
  WarpRequest request;
  request.operation = WarpOperation::ballot;
  request.predicate = predicate;
  self.block->rendezvous(self, request, mask);
  return request.result;
}

void* blockShared(void const* key, std::size_t bytes, std::size_t alignment) {
  return currentGpuThread("blockShared").block->shared(key, bytes, alignment);
}

void* sharedOfCluster(void* own, unsigned rank) {
  return currentGpuThread("sharedOfCluster").block->sharedOfCluster(own, rank);
}

std::byte* dynamicShared() { return currentGpuThread("dynamicShared").block->dynamicShared(); }

void waitForPreviousKernel() {
  auto& self = currentGpuThread("waitForPreviousKernel");
  self.block->kernel().waitForPrevious(self);
}

void allowNextKernel() { currentGpuThread("allowNextKernel").block->allowNext(); }

void exitKernel() {
  currentGpuThread("exitKernel");
  throw Unwind{};
}

void trap(char const* why) { failKernel(currentGpuThread("trap"), why); }

std::uint64_t nanoseconds() {
  auto& machine = Machine::instance();
  if (machine.deterministic()) return machine.scheduler().virtualNs();
  auto const now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

void beginWait() {
  auto& self = currentGpuThread("a wait");
  self.looks.clear();
  self.sawOldAt = self.readsNewest = 0;
  self.waitBegan = self.time.now;
  auto& machine = self.block->kernel().machine();
  if (self.agent != nullptr) machine.observer()->beginWait(*self.agent);
  if (auto* const time = machine.scheduler().time()) time->beginLooks(self);
}

void endWait(WaitDescription const& what) {
  auto& self = currentGpuThread("a wait");
  auto& machine = self.block->kernel().machine();
  if (auto* const time = machine.scheduler().time()) time->endLooks(self);
  if (isShown(self)) showWait(self, "waits for " + toString(what), self.waitBegan);
  if (self.agent == nullptr) return;
  auto& observer = *machine.observer();
  observer.endWait(*self.agent, what.kind, what.expected, observer.siteOf(*self.agent, __builtin_return_address(0)));
}

bool pollYield(PollState& state) {
  auto& self = currentGpuThread("a wait");
  auto& machine = Machine::instance();
  if (self.cancelled) throw Unwind{};
  bool const first = state.startNs == 0;
  auto const now = nanoseconds();
  if (first) state.startNs = now;
  if (first && state.what.kind == layout::WaitKind::gridBarrier && !machine.devices().fits(self.block->kernel())) {
    machine.scheduler().cut(Cut::gridNotResident);
  }
  if (auto* const faults = machine.scheduler().faults()) {
    if (faults->aborts({self.context.device, self.block->kernel().number()}, state.watch != nullptr)) {
      std::atomic_ref(state.watch->abort).store(1, std::memory_order_relaxed);
      machine.scheduler().noteProgress();
    }
  }
  if (auto* watch = state.watch; watch != nullptr && read(watch->abort) != 0) return false;
  if (state.expired) {
    machine.scheduler().noteGivenUp();
    return false;
  }
  if (!machine.deterministic()) {
    auto const waited = now - state.startNs;
    if (state.watch == nullptr) {
      if (waited > unwatchedLimitNs)
        failKernel(self, "a wait without a watch passed its limit: " + toString(state.what));
    } else if (auto const limit = read(state.watch->limitNs); limit != 0 && waited > limit) {
      return false;
    }
  }
  self.poll = &state;
  // A look at an old value says nothing about what is there now.
  bool const conclusive = !first && (self.agent == nullptr || !machine.observer()->hasSeenOld(*self.agent));
  state.resumedAt = machine.scheduler().yieldPoll(self, conclusive ? state.resumedAt : 0);
  if (self.agent != nullptr) machine.observer()->lookAgain(*self.agent);
  self.poll = nullptr;
  if (self.cancelled) throw Unwind{};
  return true;
}

}  // namespace mscclpp::sim
