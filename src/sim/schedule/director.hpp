// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides in place of the scheduler's own chance: who runs next, who is interrupted, which value is chosen.
//
// Called by the scheduler on the driving thread's stack (pick, ended) or inside of the running task (all others). The
// scheduler notes how the decisions differ from the undisturbed run (schedule.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "sim/memory/access.hpp"
#include "sim/schedule/schedule.hpp"
#include "sim/task/task.hpp"

namespace mscclpp::sim {

class Scheduler;

// Waits are looked at when no task is ready, and in one turn of about this many, so that a waiter may also go on early.
inline constexpr std::uint32_t turnsBetweenPolls = 16;

// A place in one of the scheduler's two queues; see Scheduler::ready and Scheduler::polling.
struct Candidate {
  enum class Queue : std::uint8_t { none, ready, polling };
  Queue queue = Queue::none;
  std::size_t index = 0;
};

class Director {
 public:
  virtual ~Director() = default;
  // Who runs next; none: nobody can go on. `last` ran before, at decision `point` (schedule.hpp).
  virtual Candidate pick(Scheduler& scheduler, TaskKey last, std::uint32_t point) = 0;
  // Whether the running task goes on at once with this access. Otherwise it becomes ready and `pick` is asked.
  virtual bool goesOn(Scheduler& scheduler, Task& task, Access const& access) = 0;
  // At the task's decision number task.points.
  virtual std::uint32_t choose(Task& task, ChoiceKind kind, std::uint32_t options) = 0;
  // A task has been added (reason none), or was parked and may go on.
  virtual void woken(Task&, ParkReason) {}
  // The task has given way, waits or has ended.
  virtual void stopped(Task&) {}
};

// By chance; the same seed gives the same decisions.
std::unique_ptr<Director> randomDirector(std::uint64_t seed, double preemption);
// Every task has a random priority, the highest that can go on runs; the running task falls to the lowest at `changes`
// random steps out of `steps`, and when it goes on for long without waiting.
std::unique_ptr<Director> pctDirector(std::uint64_t seed, int changes, std::uint64_t steps);
// What the schedule says, and otherwise the undisturbed course. Decisions that cannot be followed are passed over.
std::unique_ptr<Director> replayDirector(Schedule const& schedule);

}  // namespace mscclpp::sim
