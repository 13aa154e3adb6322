// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One deterministic run of all ranks: begun on the machine by the constructor, ended by the destructor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/wait.hpp"
#include "mscclpp/sim/run.hpp"
#include "sim/machine/host_task.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {

enum class RunEnd : std::uint8_t {
  finished,   // every rank's code has returned or thrown, every kernel has ended
  failed,     // a rank's code has thrown
  stuck,      // nobody can go on
  wallLimit,  // the deadline has passed
  cut,        // the scheduler says why
};

struct RankRunOptions {
  int ranks = 1;
  std::uint64_t seed = 1;
  double preemption = 0;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  Director* director = nullptr;         // null: the scheduler decides by chance
  RunLimits limits = {};                // with a director
  Faults* faults = nullptr;             // likewise; null: none
  TimingModel const* timing = nullptr;  // null: no clocks; not with a director
  bool waitsExpire = false;             // when nobody can go on
  bool stopAtFailure = true;            // else the other ranks go on as long as they can
};

struct KernelFailure {
  int device = 0;
  std::string kernel;
  bool afterRank = false;  // a rank had failed, and may have freed what the kernel uses
  bool byThread = false;
  unsigned block = 0;
  unsigned thread = 0;
  std::string text;
  std::vector<std::uintptr_t> calls;  // code addresses, innermost first
};

class RankRun {
 public:
  // `hostStacks` and `rankMain` are to outlive it.
  RankRun(RankRunOptions const& options, StackPool& hostStacks, std::function<void(RankContext&)> const& rankMain);
  ~RankRun();
  RankRun(RankRun const&) = delete;
  RankRun& operator=(RankRun const&) = delete;

  RunEnd toEnd();
  std::vector<std::unique_ptr<HostTask>> const& hostTasks() const { return hostTasks_; }
  // Ranks whose code has thrown, the first first.
  std::vector<HostTask const*> const& failedRanks() const { return failedRanks_; }
  std::vector<KernelFailure> const& kernelFailures() const { return kernelFailures_; }
  // Ends whatever still runs: all frames are unwound.
  void unwind() noexcept;

  // ---- called meanwhile
  void noteFailure(HostTask const& task) { failedRanks_.push_back(&task); }
  void noteFailure(Kernel& kernel);

 private:
  bool finishLateCopies();  // false if there were none
  void discardAll();
  void runCancelled();

  Machine& machine_;
  RankRunOptions options_;
  HostWait previousWait_ = nullptr;
  std::vector<std::unique_ptr<HostTask>> hostTasks_;
  std::vector<HostTask const*> failedRanks_;
  std::vector<KernelFailure> kernelFailures_;
};

}  // namespace mscclpp::sim
