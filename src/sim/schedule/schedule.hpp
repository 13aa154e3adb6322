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
// and before these one per fault that strikes (faults.hpp):
//   1.3=late@2           kernel 3 of rank 1 begins once two waits have been given up, or nobody else can go on
//   1.3.0=late@2         the same of its block 0 alone
//   1.3=absent           its launch fails
//   1.3=abort@7          the abort word of the rank's watch is raised at look 7 of its waits
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

// In place of a block: all of the kernel.
inline constexpr unsigned wholeGrid = (1u << 22) - 1;

TaskKey keyOfThread(ThreadName const& name);
ThreadName nameOfThread(TaskKey key);
TaskKey keyOfHost(int rank);

enum class FaultKind : std::uint8_t { none, late, absent, abort };

struct Decision {
  TaskKey task = 0;         // that ran last; 0: nobody yet. Of a fault, thread 0 of where it strikes
  std::uint32_t point = 0;  // in it
  bool isValue = false;
  std::uint64_t choice = 0;  // the task to run, the option, or the fault's number
  FaultKind fault = FaultKind::none;
  bool operator==(Decision const&) const = default;
};

using Schedule = std::vector<Decision>;

std::string toText(Schedule const& schedule);
// Throws invalidUsage, naming the entry, for anything that toText does not write.
Schedule parseSchedule(std::string_view text);

}  // namespace mscclpp::sim
