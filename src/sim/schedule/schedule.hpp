// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A schedule: where a run leaves the undisturbed course.
//
// Undisturbed, a task goes on until it waits or ends; then the task that has been ready longest runs, or, when none is,
// the first in line of the waiting ones whose condition may have changed; and every choice of value takes option 0. A
// decision is named by the task that ran last and by how many decisions came up in it before, so that leaving one out
// does not change what the others mean.
//
// As text: "v1", then one entry per decision, each after a comma:
//   0.1.3.5@12>1.0.0.0   after its decision 12, thread 5 of block 3 of kernel 1 of rank 0 gives way to that of rank 1
//   h1@2>h0              the same among the ranks' host code; "s" is the start, when nobody has run yet
//   0.1.3.5@13=1         its decision 13 takes option 1
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/task/task.hpp"

namespace mscclpp::sim {

struct ThreadName {
  int device = 0;
  unsigned kernel = 0;
  unsigned block = 0;
  unsigned thread = 0;
};

TaskKey keyOfThread(ThreadName const& name);
TaskKey keyOfHost(int rank);

struct Decision {
  TaskKey task = 0;         // that ran last; 0: nobody yet
  std::uint32_t point = 0;  // in it
  bool isValue = false;
  std::uint64_t choice = 0;  // the task to run, or the option
  bool operator==(Decision const&) const = default;
};

using Schedule = std::vector<Decision>;

std::string toText(Schedule const& schedule);
// Throws invalidUsage, naming the entry, for anything that toText does not write.
Schedule parseSchedule(std::string_view text);

}  // namespace mscclpp::sim
