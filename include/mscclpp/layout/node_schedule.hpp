// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ways in which the nodes' sums of an all-reduce become one, and the tables that kernels go by for those that are
// no direct exchange.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace mscclpp {

enum class NodeSchedule : std::uint8_t {
  oneExchange,   // each node's sum to all others
  twoExchanges,  // each node reduces one piece, and sends the result to all others
  ring,          // pieces go round twice, to be added up and as results: each node sends to one other
  doubling,      // whole sums between pairs of nodes, at distances that double
  halving,       // halves between pairs at distances that halve, and the results back: a piece of each node
};
inline constexpr std::array nodeSchedules{NodeSchedule::oneExchange, NodeSchedule::twoExchanges, NodeSchedule::ring,
                                          NodeSchedule::doubling, NodeSchedule::halving};
// "one_exchange", "two_exchanges", "ring", "doubling", "halving": the words of MSCCLPP_NODE_SCHEDULE.
constexpr std::string_view nameOf(NodeSchedule schedule) {
  constexpr std::array<std::string_view, nodeSchedules.size()> names{"one_exchange", "two_exchanges", "ring",
                                                                     "doubling", "halving"};
  return names[static_cast<std::size_t>(schedule)];
}

namespace layout {

// What a node does in one step: it sends, then waits for what it receives. Ranges are pieces of the shard; -1: nobody.
// Slot 0 of a node holds its own sum. What is added goes where the other's has arrived, since what was sent may still
// be on its way out.
struct NodeStep {
  std::int32_t sendTo = -1;
  std::int32_t sendFirst = 0;
  std::int32_t sendPieces = 0;
  std::int32_t sendFrom = 0;  // the slot here
  std::int32_t sendSlot = 0;  // and there
  std::int32_t receiveFrom = -1;
  std::int32_t receiveFirst = 0;
  std::int32_t receivePieces = 0;
  std::int32_t receiveSlot = 0;
  std::int32_t addSlot = -1;  // of what is added to it; -1: it is a result

  friend bool operator==(NodeStep const&, NodeStep const&) = default;
};

// One node's steps, as kernels receive them.
struct NodeStepsHandle {
  NodeStep const* steps;
  std::int32_t const* neighbours;  // each node that it sends to, or receives from, once
  std::int32_t count;              // of steps
  std::int32_t neighbourCount;
  std::int32_t pieces;      // of a shard
  std::int32_t resultSlot;  // where all of it lies at the end
};

}  // namespace layout
}  // namespace mscclpp
