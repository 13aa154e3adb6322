// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Searches all schedules that differ in the order of dependent steps: stateless search with dynamic partial-order
// reduction (source sets and sleep sets; Abdulla, Aronis, Jonsson, Sagonas, POPL 2014).
//
// A step is an ordered access or sequential fence of a GPU thread with what the thread does after it, up to its next
// one. Two steps depend on each other when they touch the same 8 bytes and one of them writes, or both are sequential.
// Choices of value branch completely. Everything else runs as soon as it can, in order of age, and is not branched
// over: host code, the beginning of a thread, what follows a barrier or what a warp does together, and looks of waits
// up to their first access. Lines and bulk copies depend on everything that accesses memory. A look of a wait that is
// in vain is taken to leave no trace: a run ends as soon as a later write makes it one that could have been left out.
//
// With a bound on preemptions, sleep sets are off and every step also backtracks to where its thread was switched to
// (Coons, Musuvathi, McKinley, OOPSLA 2013), so that no schedule within the bound is missed.
//
// One run: direct(scheduler), the run, next(). Costs a few microseconds a step, and memory for the steps of one run.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/schedule/director.hpp"

namespace mscclpp::sim {

class ExhaustiveSearch final : public Director {
 public:
  // A negative bound is none.
  explicit ExhaustiveSearch(int preemptionBound) : bound_(preemptionBound) {}

  void beginRun();
  // Prepares another schedule; false when all have been run.
  bool next();

  Candidate pick(Scheduler& scheduler, TaskKey last, std::uint32_t point) override;
  bool goesOn(Scheduler& scheduler, Task& task, Access const& access) override;
  std::uint32_t choose(Task& task, ChoiceKind kind, std::uint32_t options) override;
  void woken(Task& task, ParkReason reason) override;
  void stopped(Task& task) override;

 private:
  using TaskIndex = std::uint32_t;
  static constexpr TaskIndex nobody = ~TaskIndex{0};

  // What a step does to others. Words are numbered in the order in which a run first touches them, since their
  // addresses may differ between runs.
  struct Effect {
    std::uint32_t word = 0;
    bool manyWords = false;  // any
    bool memory = false;
    bool write = false;
    bool sequential = false;
    std::uint64_t lineWarp = 0;  // not 0: a lane of this warp in an access of whole lines
    bool visible() const { return memory || sequential; }
  };
  static bool dependent(Effect const& a, Effect const& b);

  // For each task: how many nodes of the path lead up to its latest step that happens before.
  class Before {
   public:
    std::uint32_t of(TaskIndex task) const { return task < upTo_.size() ? upTo_[task] : 0; }
    void set(TaskIndex task, std::uint32_t nodes);
    void join(Before const& other);

   private:
    std::vector<std::uint32_t> upTo_;
  };

  struct Node {
    // A choice of value.
    std::uint32_t options = 0;  // 0: a step
    std::uint32_t option = 0;
    // A step.
    TaskIndex task = nobody;
    Effect effect;
    Before before;
    std::vector<std::pair<TaskIndex, Effect>> enabled;
    std::vector<TaskIndex> backtrack;  // to be run from here, those that were included
    std::vector<TaskIndex> done;
    std::map<TaskIndex, Effect> asleep;  // need not run from here until something they depend on has
    TaskIndex previous = nobody;         // whose step came before
    int preemptions = 0;
    bool isEnabled(TaskIndex t) const;
  };

  TaskIndex indexOf(TaskKey key);
  std::uint32_t wordOf(std::uintptr_t address);
  Effect effectOf(Task const& task, Access const& access);
  void endSlice();
  void beginSlice(Task& task, bool isLook);
  TaskIndex decide(Scheduler& scheduler, std::vector<Task*> const& atAccess);
  void take(Node& node, bool isNew);
  void backtrackTo(Node& node, std::size_t race, std::size_t now);
  void leaveLookOut(TaskIndex task);
  static void letOtherGoFirst(Node& node);
  static void addBacktrack(Node& node, TaskIndex task);
  bool affordable(Node const& node, TaskIndex task) const;

  int const bound_;
  std::vector<Node> path_;
  std::size_t firstNew_ = 0;  // nodes before are as in the run before
  std::unordered_map<TaskKey, TaskIndex> indices_;

  // Of the present run.
  std::size_t depth_ = 0;
  TaskIndex lastStep_ = nobody;
  std::size_t lastStepNode_ = 0;
  std::unordered_map<std::uintptr_t, std::uint32_t> words_;
  std::vector<Before> known_;              // by task
  std::map<void const*, Before> streams_;  // what the ended threads of a stream's kernels knew
  struct Waking {
    TaskIndex task;
    ParkReason reason;
    void const* stream;
  };
  std::vector<Waking> wakings_;  // of the present slice
  TaskIndex running_ = nobody;
  bool runningIsGpuThread_ = false;
  bool runningGoesOn_ = false;  // it has not ended
  // Host code that waits: the slices in which the condition may have come true.
  std::vector<TaskIndex> slices_;
  std::map<TaskIndex, std::size_t> lookedAt_;  // number of slices then
  std::map<TaskIndex, std::size_t> askedAt_;   // for host code that asks without waiting: nodes then
  Before knownBeforeLook_;
  bool isLook_ = false;
  bool lookedInVain_ = false;
  bool diverged_ = false;  // the program has not repeated itself
};

}  // namespace mscclpp::sim
