// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "two_level": the collectives of a communicator whose ranks lie on several nodes. Inside a node ranks use each other's
// memory, between nodes those at the same place of each node send by port channels, with a HierarchicalTeam for each
// stream. Buffers need not be registered: what is sent goes through the team's data, in rounds.
//
// Bytes that leave a node's rank over the network: moves send what others lack, once; reductions sums of the node. What
// only the root has, or gets, goes from or to its node alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/layout/node_schedule.hpp"

namespace mscclpp::collectives_impl {

// Of a HierarchyRequirement: as measured (NetworkModel), the least of the transports to other nodes, and of a message
// as MSCCLPP_MESSAGE_BYTES says where it is set; nothing where neither is there.
struct NetworkBytes {
  std::optional<std::uint64_t> message;
  std::optional<std::uint64_t> transfer;
};
NetworkBytes networkBytes(Communicator const& communicator);
// As MSCCLPP_NODE_SCHEDULE says. Throws invalidUsage for what is no name of one.
std::optional<NodeSchedule> nodeSchedule();

std::vector<std::shared_ptr<Algorithm>> twoLevelAlgorithms();

}  // namespace mscclpp::collectives_impl
