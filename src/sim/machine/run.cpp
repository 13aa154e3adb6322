// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/rank_run.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/sim/backend/launch.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/waiting.hpp"

namespace mscclpp::sim {
namespace {

bool waitInFiber(std::function<bool()> const& ready, std::chrono::nanoseconds limit) {
  auto* task = currentHostTask();
  if (task == nullptr) return ready();
  if (limit > std::chrono::nanoseconds::zero())
    return hostTaskWait(*task, "host wait (bootstrap or communicator)", ready, limit);
  if (!task->cancelled) Machine::instance().scheduler().yieldPoll(*task, 0);
  return ready();
}

}  // namespace

// ---- a run
// -----------------------------------------------------------------------------------------------------------

RankRun::RankRun(RankRunOptions const& options, StackPool& hostStacks,
                 std::function<void(RankContext&)> const& rankMain)
    : machine_(Machine::instance()), options_(options) {
  machine_.beginRun(*this, options);
  machine_.scheduler().direct(options.director, options.limits);
  machine_.scheduler().suffer(options.faults);
  previousWait_ = threadHostWait();
  setThreadHostWait(&waitInFiber);
  auto bootstraps = LocalBootstrap::create(options.ranks);
  for (int rank = 0; rank < options.ranks; ++rank) {
    auto main = [rank, ranks = options.ranks, bootstrap = std::move(bootstraps[static_cast<std::size_t>(rank)]),
                 &rankMain]() mutable {
      RankContext context(rank, ranks, std::move(bootstrap));
      rankMain(context);
    };
    hostTasks_.push_back(std::make_unique<HostTask>(rank, hostStacks, std::move(main)));
  }
}

RankRun::~RankRun() {
  setThreadHostWait(previousWait_);
  hostTasks_.clear();
  machine_.endRun();
}

RunEnd RankRun::toEnd() {
  auto& scheduler = machine_.scheduler();
  for (auto& task : hostTasks_) scheduler.add(*task);
  for (std::uint64_t steps = 1;; ++steps) {
    bool const went = scheduler.step() || (scheduler.whyCut() == Cut::none && finishLateCopies()) ||
                      (options_.waitsExpire && scheduler.expireWait()) ||
                      (scheduler.whyCut() == Cut::none && scheduler.outlastFault());
    if (options_.stopAtFailure && !failedRanks_.empty()) return RunEnd::failed;
    if (!went) {
      if (scheduler.whyCut() != Cut::none) return RunEnd::cut;
      return !waitingGroups(machine_).empty() ? RunEnd::stuck : RunEnd::finished;
    }
    if (steps % 4096 == 0 && std::chrono::steady_clock::now() > options_.deadline) return RunEnd::wallLimit;
  }
}

// Kernels first: their threads use memory that the ranks' code owns.
void RankRun::unwind() noexcept {
  auto& scheduler = machine_.scheduler();
  scheduler.direct(nullptr);
  scheduler.keepTime(nullptr);
  scheduler.holdHostTasks();
  discardAll();
  runCancelled();
  for (auto& task : hostTasks_) task->cancelled = true;
  scheduler.releaseHostTasks();
  runCancelled();
  discardAll();
  runCancelled();
}

void RankRun::discardAll() {
  for (auto const& stream : machine_.streams()) stream->discard();
}

// When nobody can go on without them.
bool RankRun::finishLateCopies() {
  bool any = false;
  for (auto const& stream : machine_.streams()) {
    for (auto const& work : stream->queue()) {
      if (auto const* const kernel = kernelOf(work)) {
        for (auto const& [index, block] : kernel->blocks()) any |= block->finishLateCopies();
      }
    }
  }
  if (any) machine_.scheduler().noteProgress();
  return any;
}

void RankRun::noteFailure(Kernel& kernel) {
  auto const* task = currentTask();
  KernelFailure failure{
      .device = kernel.stream().device(), .kernel = kernel.name(), .text = kernel.failure(), .calls = {}};
  failure.afterRank = std::ranges::any_of(
      hostTasks_, [](auto const& rank) { return rank->failure() != nullptr || rank->hasFreedByException; });
  if (task != nullptr && task->isGpuThread()) {
    auto const& context = static_cast<GpuThread const&>(*task).context;
    failure.byThread = true;
    failure.block = context.block;
    failure.thread = context.thread;
    failure.calls = callsHere();
  }
  kernelFailures_.push_back(std::move(failure));
}

void RankRun::runCancelled() {
  while (machine_.scheduler().step()) {
  }
}

// ---- run()
// -----------------------------------------------------------------------------------------------------------

namespace {

std::string failedBefore(Machine& machine) {
  auto const failures = takeFailures(machine);
  return failures.empty() ? failures : "  failed before:\n" + failures;
}

// Throws what has gone wrong.
void judge(RunEnd end, RankRun const& run, RunOptions const& options) {
  auto& machine = Machine::instance();
  switch (end) {
    case RunEnd::finished:
      if (auto const failures = takeFailures(machine); !failures.empty()) {
        throw Error(ErrorCode::deviceError, fmt::format("kernels failed in a simulated run (seed {}) and no rank asked "
                                                        "with synchronize:\n{}",
                                                        options.seed, failures));
      }
      return;
    case RunEnd::failed:
      std::rethrow_exception(run.failedRanks().front()->failure());
    case RunEnd::stuck:
      throw Error(ErrorCode::timeout,
                  fmt::format("dead-lock in a simulated run (seed {}, after {} switches): nobody can go on\n{}{}"
                              "Run with the same seed to see it again",
                              options.seed, machine.scheduler().switches(), waiters(machine), failedBefore(machine)));
    case RunEnd::wallLimit:
    case RunEnd::cut:
      throw Error(ErrorCode::timeout,
                  fmt::format("a simulated run (seed {}) has not ended within {} s (RunOptions::wallLimit):\n{}{}"
                              "A wait that does not use the library's poll is never seen as a dead-lock",
                              options.seed, options.wallLimit.count(), waiters(machine), failedBefore(machine)));
  }
}

}  // namespace

double RankContext::nanoseconds() const {
  auto const* const task = currentHostTask();
  return task == nullptr ? 0 : static_cast<double>(task->time.now) / 1000;
}

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
  if (options.timing && options.waitsExpire) {
    throw Error(
        ErrorCode::invalidUsage,
        "sim::run: RunOptions::timing and waitsExpire are set; in a timed run no wait's limit ends, so leave one "
        "of them out");
  }
  if (options.timing) options.timing->check(options.timing->device);
  ensureInstalled();
  StackPool hostStacks(options.hostStackBytes * stackFactor);
  RankRunOptions how{.ranks = options.ranks, .seed = options.seed, .preemption = options.preemption};
  how.waitsExpire = options.waitsExpire;
  if (options.timing) how.timing = &*options.timing;
  if (options.wallLimit.count() > 0) how.deadline = std::chrono::steady_clock::now() + options.wallLimit;
  RankRun run(how, hostStacks, rankMain);
  std::exception_ptr failure;
  try {
    judge(run.toEnd(), run, options);
  } catch (...) {
    failure = std::current_exception();
    run.unwind();
  }
  if (failure) std::rethrow_exception(failure);
  auto const& scheduler = Machine::instance().scheduler();
  auto const* const time = scheduler.time();
  return {options.seed, scheduler.switches(), scheduler.memorySteps(), scheduler.trace(),
          time == nullptr ? 0 : static_cast<double>(time->latest()) / 1000};
}

}  // namespace mscclpp::sim
