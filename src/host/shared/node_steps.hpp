// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tables of a NodeSchedule: which node sends what to which, in what order. A HierarchicalTeam makes those of its
// own node; nobody is asked.
#pragma once

#include <cstdint>
#include <vector>

#include "mscclpp/layout/node_schedule.hpp"

namespace mscclpp {

// One node's. Sends of a pair are in the order in which the other receives them.
struct NodeSteps {
  std::vector<layout::NodeStep> steps{};
  std::vector<std::int32_t> neighbours{};  // each node in them once, ascending
  int pieces = 1;                          // into which a shard is cut
  int resultSlot = 0;                      // where all of them lie at the end
};

// Of `node` among so many; slots of the steps are less than `nodes`. A direct exchange has no table. Throws
// invalidUsage where there is no such node, or no table.
NodeSteps nodeSteps(NodeSchedule schedule, int nodes, int node);

}  // namespace mscclpp
