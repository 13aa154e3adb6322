// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses which task runs next. Everything that could differ between two runs is decided here, from the seed or by a
// director.
//
// A task is ready, waits in a poll (it looks at memory itself, in turn, whenever somebody has made progress since its
// last look), or is parked (somebody must make it ready). Progress is whatever could make a poll's condition true: a
// memory write, or any slice of a task that did more than look once more. When no task is ready and every poll has been
// looked at since the last progress, nobody can go on by itself.
//
// With a director, a wait of a GPU thread is looked at again only after a write to a word that its condition has read,
// so that a search over schedules ends; and runs that no longer change anything are cut off. Threads that a fault holds
// back are added once they are due, and once a fault has struck, waits expire. In a timed run the clocks of the tasks
// decide (virtual_time.hpp).
//
// One host thread at a time may call in. Costs about a dozen nanoseconds a switch beyond the fiber's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>
#include <unordered_map>
#include <vector>

#include "sim/memory/access.hpp"
#include "sim/schedule/director.hpp"
#include "sim/schedule/faults.hpp"
#include "sim/schedule/schedule.hpp"
#include "sim/task/task.hpp"
#include "sim/time/virtual_time.hpp"

namespace mscclpp::sim {

// Why a run with a director ends before its tasks do.
enum class Cut : std::uint8_t { none, stepLimit, liveLock, wasSeen, gridNotResident };

struct RunLimits {
  std::uint64_t steps = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t liveLockSteps = std::numeric_limits<std::uint64_t>::max();  // without any change
};

class Scheduler {
 public:
  // Starts a new sequence of choices; no task may exist.
  void restart(std::uint64_t seed, double preemption);
  // From now on, until it is taken away with null, the director decides. Before any task is added.
  void direct(Director* director, RunLimits const& limits = {});
  // In the directed run, and until it no longer is directed. Before any task is added.
  void suffer(Faults* faults) { faults_ = faults; }
  Faults* faults() const { return faults_; }  // null: none
  // From now on, until it is taken away with null, clocks decide; it outlives the tasks. Before any task is added.
  void keepTime(VirtualTime* time);
  VirtualTime* time() const { return time_; }
  // Where the directed run has left the undisturbed course.
  Schedule takeSchedule() { return std::move(decisions_); }
  // The directed run shall end: step() does nothing any more.
  void cut(Cut why);
  Cut whyCut() const { return cut_; }

  void add(Task& task);        // a fresh task, to be run
  void makeReady(Task& task);  // a parked one
  // Runs one slice of one task; false when none can go on by itself.
  bool step();
  // Takes the ranks' host code out of the choice, and puts it back as ready.
  void holdHostTasks();
  void releaseHostTasks();
  // Somebody outside may have changed memory: look at all conditions again.
  void noteProgress() {
    noteStep();
    lastUnknownChange_ = lastChange_ = progress_;
    lastChangeStep_ = stepsNow();
    write_.by = nullptr;  // its memory may be gone
    if (time_ != nullptr) time_->wakeAll();
  }
  // A warp has stored its lines, which its lanes had announced one by one.
  void noteLines() {
    if (time_ == nullptr) return noteProgress();
    noteStep();  // whoever waits for them has been woken
  }
  // Something has ended; memory is as before.
  void noteStep() {
    ++progress_;
    looksInVain_ = 0;
  }

  // For directors.
  std::deque<Task*> const& ready() const { return ready_; }      // in order of age
  std::deque<Task*> const& polling() const { return polling_; }  // in order of their last look
  bool worthALook(Task const& task) const;
  // Its latest look was in vain only because it came before an ordered write, or saw an old value.
  bool lookedTooEarly(Task const& task) const;
  Candidate undisturbed() const;  // what runs next if nothing is decided otherwise
  // Whether the task that ran last was interrupted; then it is the youngest of the ready.
  bool lastCanGoOn() const { return lastCanGoOn_; }
  bool tookLong() const { return sliceSteps_ >= longestSlice; }

  std::uint64_t progress() const { return progress_; }

  // The following are called by the running task.
  void park(Task& task);
  // The condition was found false by a look that began at progress `since` (0: another wait than last time). Returns
  // the progress at which the next look begins.
  std::uint64_t yieldPoll(Task& task, std::uint64_t since);
  void yieldReady(Task& task);
  // The task has read one place that often and may go on so for ever. Throws nothing: its code expects no exception
  // here. Does not return to a cancelled task.
  void spin(Task& task, std::uint32_t reads);
  // An access is about to happen: others may run first.
  void memoryStep(Task& task, Access const& access);
  // The same for host code, which takes no exception here.
  void hostStep(Task& task, Access const& access);
  // A choice in 0 to options - 1.
  std::uint32_t choose(ChoiceKind kind, std::uint32_t options);

  std::uint64_t switches() const { return switches_; }
  std::uint64_t memorySteps() const { return memorySteps_; }
  std::uint64_t trace() const { return trace_; }
  std::uint64_t virtualNs() const { return time_ == nullptr ? virtualNs_ : time_->now() / 1000; }
  // Nobody can go on: lets time pass until the first limit of a wait ends. False where no wait has one.
  bool expireWait();
  // The same once a fault has struck; or lets threads begin that it holds back, where no kernel's wait has a limit.
  bool outlastFault();
  // A kernel's wait is given up for its limit.
  void noteGivenUp();
  // Threads that are held back and shall end.
  void releaseCancelled();

 private:
  struct Word {
    std::uint64_t writtenAt = 0;  // progress at its latest ordered write
    std::vector<Task*> watchers;  // that wait, and have read it in their latest look
  };

  // A kernel that spins by itself on a load must not keep everybody else from running.
  static constexpr std::uint32_t longestSlice = 4096;

  // The wait whose limit ends first.
  struct Expiring {
    Task* task = nullptr;  // null: none has a limit
    std::uint64_t ends = 0;
    bool kernelsToo = false;  // one of those that have a limit is a kernel's
  };
  Expiring nextToExpire() const;
  void expire(Expiring const& wait);
  void begin(Task& task);
  template <class Due>
  bool releaseLate(Due const& isDue);

  Task* pick();
  Task* pickDirected();
  std::uint64_t yieldPollDirected(Task& task);
  std::uint64_t yieldPollTimed(Task& task);
  void directedStep(Task& task, Access const& access);
  void undirectedStep(Task& task, bool write);
  void settle(Task& task);  // once its slice has ended
  std::uint64_t stepsNow() const { return memorySteps_ + switches_; }
  std::uint32_t below(std::uint32_t limit);
  std::uint32_t nextPreemption();
  void record(std::uint64_t what) { trace_ = (trace_ ^ what) * 0x100000001b3u; }

  std::mt19937_64 random_;
  std::deque<Task*> ready_;
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

  VirtualTime* time_ = nullptr;

  // Of directed runs.
  Director* director_ = nullptr;
  Faults* faults_ = nullptr;
  std::vector<Task*> late_;  // held back by a fault
  RunLimits limits_;
  Cut cut_ = Cut::none;
  Schedule decisions_;
  Task* running_ = nullptr;
  TaskKey last_ = 0;  // the task that ran last, and its decision at which it stopped
  std::uint32_t lastPoint_ = 0;
  bool lastCanGoOn_ = false;  // it is the youngest of the ready
  std::unordered_map<std::uintptr_t, Word> words_;
  std::uint64_t lastChange_ = 1;         // progress at the latest change of memory
  std::uint64_t lastUnknownChange_ = 1;  // of words that are not known
  std::uint64_t lastChangeStep_ = 0;     // steps until then that did something
  std::uint64_t warpParks_ = 1;          // how often a lane has waited for others of its warp
  struct {
    Task const* by = nullptr;
    std::uintptr_t address = 0;
    std::uint64_t before = 0;
  } write_;  // the latest one, until it is known whether it has changed the value
};

}  // namespace mscclpp::sim
