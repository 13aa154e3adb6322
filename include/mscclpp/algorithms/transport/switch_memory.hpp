// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transports through the switch between the ranks' devices, which adds up what they hold and stores into all of them at
// once (NVLink SHARP). Teams, and the windows of buffers that are used where they lie, have multicast addresses.
//
//   SwitchMemory<Unroll>       straight between the buffers of the ranks, which lie in symmetric memory; Unroll
//                              accesses of 16 bytes a thread are in flight together
//   SwitchStage<Unroll>        by way of the ranks' workspaces, so that any buffers will do; chunks of Unroll payloads
//                              a thread
//   SwitchPackets<P, Unroll>   packets that one store hands to all ranks; P is LL8 or LL16
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/algorithms/transport/packet_transport.hpp"
#include "mscclpp/algorithms/transport/peer_memory.hpp"
#include "mscclpp/device/multimem.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <unsigned Unroll = 4>
struct SwitchMemory {
  static constexpr unsigned unroll = Unroll;
  static constexpr unsigned granule = 16;
  static constexpr std::size_t sharedBytes = 0;
  // Few threads keep the switch busy. None of these figures is measured.
  static constexpr LaunchPolicy launch{
      .perThread = 16 * Unroll, .threads = 512, .largestThreads = 512, .largestBlocks = 32};

  // Signals only; the workspaces have multicast addresses for them.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t, std::uint32_t) {
    return {blocks, 0, 0, 0, 1};
  }
};
static_assert(DirectTransport<SwitchMemory<>>);

template <unsigned Unroll = 4>
struct SwitchStage {
  static constexpr unsigned unroll = Unroll;
  static constexpr unsigned granule = 16;
  static constexpr LaunchPolicy launch = SwitchMemory<Unroll>::launch;
  static constexpr bool staged = true;

  // A chunk for each block, however many ranks there are.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t threads,
                                                            std::uint32_t) {
    return {blocks, 0, 0, std::uint64_t{threads} * Unroll * 16, 1};
  }
};

// By way of workspaces, for SwitchPipeline.
template <class T>
concept StagedTransport = requires {
  requires T::staged;
  { T::requirement(1u, 1u, 1u) } -> std::same_as<layout::WorkspaceRequirement>;
};
static_assert(StagedTransport<SwitchStage<>>);

template <MulticastPacketFormat P, unsigned Unroll = 1>
struct SwitchPackets : PacketTransport<P, Unroll> {
  static constexpr bool toAll = true;

  // As PacketTransport's, with multicast addresses besides.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t threads,
                                                            std::uint32_t rows) {
    auto need = PacketTransport<P, Unroll>::requirement(blocks, threads, rows);
    need.multicast = 1;
    return need;
  }
};
static_assert(SessionTransport<SwitchPackets<LL8>> && SessionTransport<SwitchPackets<LL16>>);

// As publishPhase(), through the switch: one store tells `unit` of all ranks, this one included, that the group's
// threads have finished `phase` of `epoch`. What they wrote before is visible to whoever sees it, by whatever address.
template <SyncGroup G>
MSCCLPP_DEVICE void publishToAll(DeviceTeam const& team, G const& group, unsigned unit, unsigned phase,
                                 std::uint64_t epoch) {
  syncWhole(group);
  if (group.rank() != 0) return;
  multimemFence();
  multimemStore<Order::release, Scope::system>(team.multicastSignal(phase, unit, team.rank), epoch);
}

// The frame of a collective through the switch: between constructor and finish() the ranks' buffers may be read and
// written by their multicast addresses, and by plain ones. A round of the team. All threads of the blocks; block b
// meets block b of every peer.
template <BlockSet B>
class SwitchRound {
 public:
  MSCCLPP_DEVICE SwitchRound(DeviceTeam const& team, B const& blocks)
      : team_(team), blocks_(blocks), epoch_(beginRounds(team, blocks, 1)) {
    publishToAll(team_, blocks_.block(), blocks_.blockRank(), 0, epoch_);
    commitEpoch(team_, blocks_, epoch_);
    awaitPhase(team_, blocks_, 0, epoch_);
  }

  // On return what the same block of every peer has done is done, and visible to this block.
  MSCCLPP_DEVICE void finish() const {
    publishToAll(team_, blocks_.block(), blocks_.blockRank(), 1, epoch_);
    awaitPhase(team_, blocks_, 1, epoch_);
  }

 private:
  DeviceTeam const& team_;
  B blocks_;
  std::uint64_t epoch_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
