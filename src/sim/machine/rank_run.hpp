// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One deterministic run of all ranks: begun on the machine by the constructor, ended by the destructor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "mscclpp/host/wait.hpp"
#include "mscclpp/sim/run.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {

enum class RunEnd : std::uint8_t {
  finished,   // every rank's code has returned or thrown, every kernel has ended
  failed,     // a rank's code has thrown
  stuck,      // nobody can go on
  wallLimit,  // the deadline has passed
  cut,        // the scheduler says why
};

class RankRun {
 public:
  struct Options {
    int ranks = 1;
    std::uint64_t seed = 1;
    double preemption = 0;
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    Director* director = nullptr;            // null: the scheduler decides by chance
    RunLimits limits = {};                   // with a director
    CheckerOptions const* checks = nullptr;  // null: no checks; whoever asks for them calls Machine::endChecks
    TimingModel const* timing = nullptr;     // null: no clocks; not with a director
    bool waitsExpire = false;                // when nobody can go on
    bool stopAtFailure = true;               // else the other ranks go on as long as they can
  };

  // `hostStacks` and `rankMain` are to outlive it.
  RankRun(Options const& options, StackPool& hostStacks, std::function<void(RankContext&)> const& rankMain);
  ~RankRun();
  RankRun(RankRun const&) = delete;
  RankRun& operator=(RankRun const&) = delete;

  RunEnd toEnd();
  // The first rank whose code has thrown; null: none.
  HostTask const* failedRank() const;
  // Ends whatever still runs: all frames are unwound.
  void unwind() noexcept;

 private:
  void runCancelled();

  Machine& machine_;
  Options options_;
  HostWait previousWait_ = nullptr;
};

}  // namespace mscclpp::sim
