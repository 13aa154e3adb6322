// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host code of one rank in a deterministic run, and how it looks at words that others write.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "sim/memory/access.hpp"
#include "sim/task/task.hpp"

namespace mscclpp::sim {

class HostTask final : public Task {
 public:
  HostTask(int rank, StackPool& stacks, std::function<void()> main);
  int rank() const { return rank_; }
  TaskKey key() const override;
  std::exception_ptr const& failure() const { return failure_; }
  bool hasFreedByException = false;  // memory that others may use
  void ended() override;
  void failedToStart(char const* why) override;

  // Whether it runs the condition of a hostTaskWait().
  bool asks = false;
  // Before it looks at the word at `address`. Code that goes round a few words and finds all of them as they were lets
  // others run here; after very many rounds it is taken to wait. False: the run has ended meanwhile.
  bool mayLook(std::uintptr_t address);
  void looked(std::uintptr_t address, std::uint64_t value);
  void updated(std::uintptr_t address, unsigned bytes, std::uint64_t found, WordUpdate const& update);
  void acted() {
    seen_.clear();
    inVain_ = 0;
  }

 private:
  friend std::uint64_t loadStep(HostTask&, Access const&, void const*);
  friend void storeStep(HostTask&, Access const&, std::uint64_t, void const*);
  friend std::uint64_t updateStep(HostTask&, Access const&, WordUpdate const&, void const*);
  void step(Access const& access);

  struct Seen {
    std::uintptr_t address;
    std::uint64_t value;
    bool thisRound;
  };
  std::vector<Seen> seen_;        // the words it goes round, since it last did something
  unsigned inVain_ = 0;           // looks that found what the one before found
  std::uint64_t roundBegan_ = 0;  // progress then
  std::string waitsFor_;
  void body() noexcept override;
  StackPool& stacks() override { return stacks_; }
  int rank_;
  StackPool& stacks_;
  std::function<void()> main_;
  std::exception_ptr failure_;
};

// The rank that is running; null elsewhere.
HostTask* currentHostTask() noexcept;
// Ordered accesses of rank code to the machine's memory: a step of the scheduler, then carried out by the observer.
// Looks come after mayLook(). They throw nothing, since std::atomic expects no exception.
std::uint64_t loadStep(HostTask& self, Access const& access, void const* code);
void storeStep(HostTask& self, Access const& access, std::uint64_t value, void const* code);
std::uint64_t updateStep(HostTask& self, Access const& access, WordUpdate const& update, void const* code);
void fenceStep(HostTask& self, Order order, Scope scope, void const* code);

// Lets the other tasks run until `ready`; throws Unwind when the run ends first, or returns false where it must not
// throw because an exception is already on its way.
// Also false once the limit has passed, which happens only where waits expire (RunOptions).
bool hostTaskWait(HostTask& task, char const* what, std::function<bool()> const& ready,
                  std::chrono::nanoseconds limit = {});

}  // namespace mscclpp::sim
