// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a simulated thread waits for a value in memory. Called by arch/sim/spin.hpp only.
#pragma once

#include <cstdint>

#include "mscclpp/layout/watch.hpp"
#include "mscclpp/sim/backend/wait_description.hpp"

namespace mscclpp::sim {

// One wait, from the first look that failed to the last.
struct PollState {
  WaitDescription what;
  layout::Watch* watch = nullptr;  // may be null
  std::uint64_t startNs = 0;       // 0: pollYield has not been called yet
  std::uint64_t resumedAt = 0;     // the scheduler's count of progress when the latest look began
  bool expired = false;            // its limit has passed (RunOptions::waitsExpire)
};

// Around each wait, whether or not it has to look more than once.
void beginWait();
void endWait(WaitDescription const& what);

// The condition was just found false: lets others run, and returns when it is worth another look.
// False when the wait has to be given up: the watch's abort flag is set or its limit passed. In a deterministic run no
// time passes: the scheduler sees exactly when nobody can go on, and only then a limit may count.
// A wait without a watch fails its kernel after 20 seconds outside of deterministic runs, as on a GPU.
bool pollYield(PollState& state);

// The clock of limits: wall time, or in a deterministic run a count that advances with the scheduler's steps.
std::uint64_t nanoseconds();

}  // namespace mscclpp::sim
