// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses which task runs next. Everything that could differ between two runs is decided here, from the seed.
//
// A task is ready, waits in a poll (it looks at memory itself, in turn, whenever somebody has made progress since its
// last look), or is parked (somebody must make it ready). Progress is whatever could make a poll's condition true: a
// memory write, or any slice of a task that did more than look once more. When no task is ready and every poll has been
// looked at since the last progress, nobody can go on by itself.
//
// One host thread at a time may call in. Costs about a dozen nanoseconds a switch beyond the fiber's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "access.hpp"
#include "task.hpp"

namespace mscclpp::sim {

class Scheduler {
 public:
  // Starts a new sequence of choices; no task may exist.
  void restart(std::uint64_t seed, double preemption);

  void add(Task& task);        // a fresh task, to be run
  void makeReady(Task& task);  // a parked one
  // Runs one slice of one task; false when none can go on by itself.
  bool step();
  // Takes the ranks' host code out of the choice, and puts it back as ready.
  void holdHostTasks();
  void releaseHostTasks();
  // Somebody outside may have changed memory: look at all conditions again.
  void noteProgress() {
    ++progress_;
    looksInVain_ = 0;
  }

  std::uint64_t progress() const { return progress_; }

  // The following are called by the running task.
  void park(Task& task);
  // The condition was found false by a look that began at progress `since` (0: another wait than last time). Returns
  // the progress at which the next look begins.
  std::uint64_t yieldPoll(Task& task, std::uint64_t since);
  void yieldReady(Task& task);
  // An access is about to happen: others may run first.
  void memoryStep(Task& task, Access const& access);
  // A choice in 0 to options - 1.
  std::uint32_t choose(ChoiceKind kind, std::uint32_t options);

  std::uint64_t switches() const { return switches_; }
  std::uint64_t memorySteps() const { return memorySteps_; }
  std::uint64_t trace() const { return trace_; }
  std::uint64_t virtualNs() const { return virtualNs_; }

 private:
  Task* pick();
  std::uint32_t below(std::uint32_t limit);
  std::uint32_t nextPreemption();
  void record(std::uint64_t what) { trace_ = (trace_ ^ what) * 0x100000001b3u; }

  std::mt19937_64 random_;
  std::vector<Task*> ready_;
  std::deque<Task*> polling_;
  std::vector<Task*> held_;
  std::uint64_t progress_ = 1;
  std::size_t looksInVain_ = 0;       // since the last progress
  std::uint32_t preemptionSpan_ = 0;  // 0: never
  std::uint32_t untilPreemption_ = 0;
  std::uint32_t untilPollTurn_ = 1;
  std::uint32_t sliceSteps_ = 0;
  std::uint64_t nextId_ = 1;
  std::uint64_t switches_ = 0;
  std::uint64_t memorySteps_ = 0;
  std::uint64_t trace_ = 0;
  std::uint64_t virtualNs_ = 1;
};

}  // namespace mscclpp::sim
