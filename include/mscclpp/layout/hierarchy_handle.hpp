// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks of several nodes as kernels receive them: those of the own node by mapped memory, the same rail's of the other
// nodes by port channels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/layout/node_schedule.hpp"
#include "mscclpp/layout/port_handle.hpp"
#include "mscclpp/layout/team_handle.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp::layout {

// What a network carries out of one rank in the time that a message is on its way: of adapters, 50 GB/s in 10 us, and
// of TCP, 2.5 GB/s in 20 us. And in that of a further transfer that a proxy starts: a tenth and a quarter.
inline constexpr std::uint64_t usualMessageBytes = 500'000;
inline constexpr std::uint64_t usualTransferBytes = 50'000;
inline constexpr std::uint64_t tcpMessageBytes = 50'000;
inline constexpr std::uint64_t tcpTransferBytes = 12'500;

struct HierarchyHandle {
  TeamHandle local;                   // of this node; a rank's place in it is its rail
  WindowHandle data;                  // of the node's ranks
  std::int32_t node;                  // this rank's
  std::int32_t nodes;                 // of `local.size` ranks each
  std::int32_t const* ranks;          // rank of each node's each rail; node by node
  PortChannelHandle const* gather;    // to the same rail of each other node, in their order: from data to data
  PortChannelHandle const* exchange;  // the same: from inbox to inbox
  std::byte* inbox;                   // a slot for each node, where `exchange` puts; null: nothing is reduced
  std::uint64_t slotBytes;
  WindowHandle outbox;            // of the node's ranks, for all-to-all; empty where that was not asked for
  PortChannelHandle const* deal;  // as `gather`: from outbox to data
  std::uint64_t partBytes;        // of a slot of `outbox` and `data`, which have one for each rank of all nodes;
                                  // in the outbox as many words follow, which tell what lies in each
  std::uint64_t messageBytes;     // of this network, as above; the same on all ranks
  std::uint64_t transferBytes;    // likewise
  NodeStepsHandle const* steps;   // this node's by ring, doubling and halving
  std::int32_t schedule;          // of all all-reduces, a NodeSchedule; -1: by size
};

}  // namespace mscclpp::layout
