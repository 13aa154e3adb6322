// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "two_level": the collectives of a communicator whose ranks lie on several nodes. Inside a node ranks use each other's
// memory, between nodes those at the same place of each node send by port channels, with a HierarchicalTeam for each
// stream. Buffers need not be registered: what is sent goes through the team's data, in rounds.
//
// Bytes that leave a node's rank over the network: all-gather, broadcast and all-to-all what others lack; all-reduce
// and reduce-scatter sums of the node. Reduce is an all-reduce and gather an all-gather of which only the root keeps
// the result, scatter a broadcast of which each rank keeps its part.
#pragma once

#include <memory>
#include <vector>

#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp::collectives_impl {

std::vector<std::shared_ptr<Algorithm>> twoLevelAlgorithms();

}  // namespace mscclpp::collectives_impl
