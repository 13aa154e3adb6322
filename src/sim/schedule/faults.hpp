// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults of one run: ranks that are late, absent or aborted, at places that its schedule names.
//
// The machine tells of each launch, each thread that is about to begin and each look of a wait, and does what the
// answer says. A fault whose place does not come up does not strike, and then the run is one without it. All launches
// and looks are counted, so that a run without faults tells where there could be some.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/schedule.hpp"

namespace mscclpp::sim {

// A launch of a kernel, by its device and its number there.
using LaunchName = std::pair<int, unsigned>;

struct LaunchSeen {
  std::string kernel;
  unsigned blocks = 0;
  std::uint32_t looks = 0;  // of its waits
};

class Faults {
 public:
  // Decisions that are no faults are passed over.
  explicit Faults(Schedule const& planned = {});

  // ---- called by the machine
  // Whether the launch fails.
  bool fails(LaunchName const& launch, std::string const& kernel, unsigned blocks);
  // Whether the thread may not begin before isDue().
  bool holds(TaskKey thread);
  // Whether enough waits have been given up for a thread that was held.
  bool isDue(TaskKey thread) const;
  // Whether the abort word is to be raised at this look. `heard`: there is one.
  bool aborts(LaunchName const& launch, bool heard);
  void noteGivenUp() { ++givenUp_; }

  bool struck() const { return !struck_.empty(); }
  // Those that have struck: to replay them, and in words.
  Schedule const& struckHere() const { return struck_; }
  std::vector<std::string> texts() const;
  std::map<LaunchName, LaunchSeen> const& launches() const { return launches_; }

 private:
  Decision const* plannedLate(TaskKey thread) const;
  void strike(Decision const& fault);

  Schedule planned_;
  Schedule struck_;
  std::map<LaunchName, LaunchSeen> launches_;
  std::uint64_t givenUp_ = 0;
};

// One to `most` faults by chance, each at a launch of these; the same seed gives the same.
Schedule chooseFaults(std::map<LaunchName, LaunchSeen> const& launches, std::uint64_t seed, int most);

}  // namespace mscclpp::sim
