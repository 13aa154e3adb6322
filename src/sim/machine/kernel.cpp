// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/kernel.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/machine/rank_run.hpp"
#include "sim/schedule/schedule.hpp"
#include "sim/time/time_line.hpp"

namespace mscclpp::sim {

void GpuThread::body() noexcept {
  if (cancelled) return;
  began = time.now;
  auto& kernel = block->kernel();
  try {
    kernel.runThread();
  } catch (Unwind const&) {
  } catch (std::exception const& e) {
    kernel.fail(fmt::format("block {} thread {}: {}", context.block, context.thread, e.what()));
  } catch (...) {
    kernel.fail(
        fmt::format("block {} thread {} threw something that is no std::exception", context.block, context.thread));
  }
}

StackPool& GpuThread::stacks() {
  auto& kernel = block->kernel();
  return kernel.machine().stacksOf(kernel);
}

TaskKey GpuThread::key() const {
  return keyOfThread({context.device, block->kernel().number(), context.block, context.thread});
}

void GpuThread::ended() { block->threadEnded(*this); }

void GpuThread::failedToStart(char const* why) {
  block->kernel().fail(fmt::format("block {} thread {} could not start: {}", context.block, context.thread, why));
}

Kernel::Kernel(Machine& machine, Stream& stream, LaunchShape const& shape, std::string name,
               std::function<void()> perThread)
    : machine_(machine),
      stream_(stream),
      shape_(shape),
      name_(std::move(name)),
      number_(machine.deterministic() ? machine.devices().numberKernel(stream.device()) : 0),
      perThread_(std::move(perThread)) {}

Kernel::~Kernel() { *running_ = false; }

std::shared_ptr<Kernel> Kernel::ofHost(Machine& machine, Stream& stream, std::string name, std::function<void()> main) {
  auto kernel = std::make_shared<Kernel>(machine, stream, LaunchShape{.blocks = 1, .threads = 1}, std::move(name),
                                         std::move(main));
  kernel->isHost_ = true;
  return kernel;
}

void Kernel::start(std::shared_ptr<Kernel> previous, Clock const& launch, Picoseconds submitTime) {
  started_ = true;
  previous_ = std::move(previous);
  startClock_ = launch;
  // A kernel that overlaps the one ahead of it knows no more than that one did when it began.
  startClock_.join(previous_ == nullptr ? stream_.clock() : previous_->startClock());
  if (auto* const time = machine_.scheduler().time(); time != nullptr && !isHost_) {
    auto const& model = time->model();
    startTime_ = previous_ == nullptr ? std::max(submitTime, stream_.time()) + VirtualTime::picoseconds(model.start)
                                      : std::max(submitTime, time->now()) + VirtualTime::picoseconds(model.overlap);
    lane_ = time->takeLane(stream_.device(), startTime_);
  }
  machine_.devices().queueBlocks(*this);
}

void Kernel::startBlock() {
  unsigned const index = nextBlock_++;
  blocks_.emplace(index, std::make_unique<Block>(*this, index));
}

void Kernel::waitForPrevious(GpuThread& self) {
  if (self.cancelled) throw Unwind{};
  if (previous_ == nullptr) return;
  auto const begin = self.time.now;
  if (!previous_->hasEnded()) {
    previous_->waitingForThis_.push_back(&self);
    self.parkedOn = ParkReason::previousKernel;
    machine_.scheduler().park(self);
    if (self.cancelled) throw Unwind{};
  }
  self.time.now = std::max(self.time.now, previous_->endTime());
  if (isShown(self)) showWait(self, "waits for the previous kernel", begin);
  if (self.agent == nullptr) return;
  machine_.observer()->acquire(*self.agent, previous_->endClock());
  machine_.observer()->passProxies(previous_->endClock());
}

void Kernel::noteEnd(TaskTime const& thread) {
  endTime_ = std::max(endTime_, thread.now);
  storedTime_ = std::max(storedTime_, thread.stored);
}

std::size_t Kernel::clusterArrivals(unsigned block) const {
  auto const cluster = block / shape_.clusterBlocks;
  auto const found = clusterWaiting_.find(cluster);
  if (found != clusterWaiting_.end() && !found->second.empty()) return found->second.size();
  auto const parts = clusterArrivals_.find(cluster);
  if (parts == clusterArrivals_.end()) return 0;
  auto const waited = std::ranges::find_if(parts->second, [](Arrivals const& one) { return !one.waiting.empty(); });
  return waited == parts->second.end() ? 0 : waited->come;
}

std::size_t Kernel::clusterThreads(unsigned block) const {
  auto const first = block / shape_.clusterBlocks * shape_.clusterBlocks;
  std::size_t live = 0;
  for (auto at = blocks_.lower_bound(first); at != blocks_.end() && at->first < first + shape_.clusterBlocks; ++at) {
    live += at->second->live();
  }
  return live;
}

void Kernel::clusterBarrier(GpuThread& self) {
  if (self.cancelled) throw Unwind{};
  auto const block = self.context.block;
  clusterWaiting_[block / shape_.clusterBlocks].push_back(&self);
  if (clusterWaiting_[block / shape_.clusterBlocks].size() == clusterThreads(block)) {
    releaseCluster(block, &self);
    machine_.scheduler().memoryStep(self, {.kind = AccessKind::update});  // others may go on first
    return;
  }
  self.parkedOn = ParkReason::clusterBarrier;
  machine_.scheduler().park(self);
  if (self.cancelled) throw Unwind{};
}

void Kernel::arriveAtCluster(GpuThread& self) {
  if (self.cancelled) throw Unwind{};
  auto& all = clusterArrivals_[self.context.block / shape_.clusterBlocks];
  if (all.size() == self.clusterArrivals) all.emplace_back();
  auto& arrivals = all[self.clusterArrivals++];
  ++arrivals.come;
  arrivals.time = std::max(arrivals.time, self.time.now);
  completeArrivals(self.context.block, arrivals);
}

void Kernel::awaitCluster(GpuThread& self) {
  if (self.cancelled) throw Unwind{};
  auto const mine = [&]() -> Arrivals& {
    return clusterArrivals_[self.context.block / shape_.clusterBlocks][self.clusterArrivals - 1];
  };
  if (mine().come < clusterThreads(self.context.block)) {
    mine().waiting.push_back(&self);
    self.parkedOn = ParkReason::clusterBarrier;
    machine_.scheduler().park(self);
    if (self.cancelled) throw Unwind{};
  }
  if (auto* const time = machine_.scheduler().time()) {
    self.time.now = std::max(self.time.now, mine().time + VirtualTime::picoseconds(time->model().cluster));
  }
}

void Kernel::completeArrivals(unsigned block, Arrivals& arrivals) {
  if (arrivals.come < clusterThreads(block)) return;
  for (auto* thread : std::exchange(arrivals.waiting, {})) machine_.scheduler().makeReady(*thread);
}

void Kernel::threadLeft(unsigned block) {
  auto const cluster = block / shape_.clusterBlocks;
  auto const waiting = clusterWaiting_.find(cluster);
  if (waiting != clusterWaiting_.end() && !waiting->second.empty() && waiting->second.size() == clusterThreads(block)) {
    releaseCluster(block, nullptr);
  }
  if (auto const parts = clusterArrivals_.find(cluster); parts != clusterArrivals_.end()) {
    for (auto& arrivals : parts->second) completeArrivals(block, arrivals);
  }
}

void Kernel::releaseCluster(unsigned block, GpuThread const* except) {
  auto const threads = std::exchange(clusterWaiting_[block / shape_.clusterBlocks], {});
  if (auto* const time = machine_.scheduler().time()) time->barrier(threads, VirtualTime::Barrier::cluster);
  for (auto* thread : threads) {
    if (thread != except) machine_.scheduler().makeReady(*thread);
  }
  auto* const observer = machine_.observer();
  if (observer == nullptr) return;
  std::vector<Agent*> agents;
  for (auto const* thread : threads) agents.push_back(thread->agent);
  observer->barrier(agents, "cluster barrier");
}

void Kernel::fail(std::string const& text) {
  if (cancelled_) return;
  failure_ = text;
  if (auto* const run = machine_.run()) run->noteFailure(*this);
  cancel();
}

void Kernel::cancel() {
  if (std::exchange(cancelled_, true)) return;
  if (previous_ != nullptr)
    std::erase_if(previous_->waitingForThis_, [this](GpuThread* t) { return &t->block->kernel() == this; });
  // Blocks that have not begun never will.
  unsigned const dropped = shape_.blocks - nextBlock_;
  machine_.devices().dropBlocks(*this);
  nextBlock_ = shape_.blocks;
  blocksEnded_ += dropped;
  blocksAllowing_ += dropped;
  clusterWaiting_.clear();
  clusterArrivals_.clear();
  for (auto& [index, block] : blocks_) block->cancel();
}

void Kernel::blockAllowed() {
  ++blocksAllowing_;
  if (blocksAllowing_ == shape_.blocks) stream_.advance();
}

void Kernel::blockEnded(unsigned index) {
  blocks_.erase(index);
  threadLeft(index);
  ++blocksEnded_;
  machine_.devices().freeBlock(*this);
  if (blocksEnded_ != shape_.blocks) return;
  *running_ = false;
  if (auto* const time = machine_.scheduler().time(); time != nullptr && !isHost_) {
    auto const& model = time->model();
    auto const doublings = std::log2(static_cast<double>(shape_.blocks));
    endTime_ += VirtualTime::picoseconds(model.end + model.endDoubling * doublings);
    endTime_ = std::max(endTime_, storedTime_);
    if (previous_ != nullptr) endTime_ = std::max(endTime_, previous_->endTime());
    time->giveBackLane(stream_.device(), lane_, endTime_);
    if (isTraced()) showKernel(stream_.device(), lane_, name_, startTime_, endTime_);
  }
  endClock_.join(startClock_);
  if (previous_ != nullptr) endClock_.join(previous_->endClock());
  previous_.reset();
  perThread_ = nullptr;  // what it has captured is gone before the host learns of the end
  for (GpuThread* thread : std::exchange(waitingForThis_, {})) machine_.scheduler().makeReady(*thread);
  stream_.advance();
}

GpuThread& currentGpuThread(char const* operation) {
  auto* task = currentTask();
  if (task == nullptr || !task->isGpuThread()) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{} was called outside of a kernel; device functions run in kernels that are launched on "
                            "the simulated machine",
                            operation));
  }
  return static_cast<GpuThread&>(*task);
}

void failKernel(GpuThread& self, std::string const& why) {
  self.block->kernel().fail(fmt::format("block {} thread {}: {}", self.context.block, self.context.thread, why));
  throw Unwind{};
}

}  // namespace mscclpp::sim
