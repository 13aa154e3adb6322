// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ranks of several nodes (host/hierarchy.hpp) as device code sees them: where a rank lies, and what the ranks of
// one rail tell and send each other by port channels.
//
//   DeviceHierarchy const& h                    a parameter of the kernel; HierarchicalTeam::deviceHandle()
//   h.meetRail(block), h.putToRail(block, ...), h.awaitRail(block), h.flushRail(block)
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/node_schedule.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/layout/hierarchy_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// `bytes` from byte `first` on: of the data, of an inbox, or of one slot of it.
struct ByteRange {
  std::uint64_t first;
  std::uint64_t bytes;
};

// Where a rank lies.
struct NodeAndRail {
  int node;
  int rail;
};

// Kernels take it by value and pass it on by reference, as a DeviceTeam.
struct DeviceHierarchy : layout::HierarchyHandle {
  DeviceHierarchy() = default;
  MSCCLPP_HOST_DEVICE DeviceHierarchy(layout::HierarchyHandle const& handle) : layout::HierarchyHandle(handle) {}

  // Ranks of a node, and of all.
  MSCCLPP_DEVICE int rails() const { return local.size; }
  MSCCLPP_DEVICE int size() const { return nodes * local.size; }
  // The rank on that rail of that node, from a table in memory; rank(): this one.
  MSCCLPP_DEVICE int rankOf(int ofNode, int rail) const { return ranks[ofNode * local.size + rail]; }
  MSCCLPP_DEVICE int rank() const { return rankOf(node, local.rank); }
  // Refuses what is no rank.
  MSCCLPP_DEVICE NodeAndRail placeOf(int root) const {
    require(root >= 0 && root < size(), local.watch, root, std::uint64_t(layout::Misuse::root),
            static_cast<std::uint64_t>(size()), static_cast<std::uint64_t>(root));
    int place = 0;
    while (ranks[place] != root) ++place;
    return {place / local.size, place % local.size};
  }
  // The other nodes, counted from 0 on, as channels to them are.
  MSCCLPP_DEVICE int otherNode(int i) const { return i < node ? i : i + 1; }
  // Of the data, where reductions may work: all of it, or nothing where the team was not made for them.
  MSCCLPP_DEVICE std::uint64_t reducibleBytes() const { return inbox == nullptr ? 0 : data.bytes; }
  // To the same rail of another node, from data to data, and from inbox to inbox.
  MSCCLPP_DEVICE PortChannelDeviceHandle gatherChannel(int other) const {
    return gather[other < node ? other : other - 1];
  }
  MSCCLPP_DEVICE PortChannelDeviceHandle exchangeChannel(int other) const {
    return exchange[other < node ? other : other - 1];
  }

  // Of reductions of so many bytes: that of the team's requirement, else the fastest. `directOnly`: of the direct
  // exchanges, which combine all nodes' sums at once.
  MSCCLPP_DEVICE NodeSchedule scheduleFor(std::uint64_t bytes, bool directOnly = false) const {
    if (schedule >= 0 && !(directOnly && schedule > static_cast<int>(NodeSchedule::twoExchanges))) {
      return static_cast<NodeSchedule>(schedule);
    }
    auto const shard = ceilDiv<std::uint64_t>(bytes, static_cast<unsigned>(local.size));
    return fastestSchedule(static_cast<std::uint64_t>(nodes), shard, messageBytes, transferBytes, directOnly);
  }
  // Of those that have a table.
  MSCCLPP_DEVICE layout::NodeStepsHandle const& stepsOf(NodeSchedule by) const {
    return steps[static_cast<int>(by) - static_cast<int>(NodeSchedule::ring)];
  }

  // Called by one block of each rank, as all that follow: to the same rail of every other node.
  template <SyncGroup G>
  MSCCLPP_DEVICE void signalRail(G const& group) const {
    if (group.rank() == 0) {
      for (int i = 0; i < nodes - 1; ++i) PortChannelDeviceHandle(gather[i]).signal();
    }
  }
  // The rail of another node may write here, and has.
  template <SyncGroup G>
  MSCCLPP_DEVICE void awaitNode(G const& group, int other) const {
    if (group.rank() == 0) {
      auto const channel = gatherChannel(other);
      channel.signal();
      channel.wait();
    }
  }
  // The same rail of every other node has come as far, and may be written to.
  template <SyncGroup G>
  MSCCLPP_DEVICE void meetRail(G const& group) const {
    signalRail(group);
    awaitRail(group);
  }
  // One signal of each of them.
  template <SyncGroup G>
  MSCCLPP_DEVICE void awaitRail(G const& group) const {
    if (group.rank() == 0) {
      for (int i = 0; i < nodes - 1; ++i) PortChannelDeviceHandle(gather[i]).wait();
    }
    syncWhole(group);
  }
  // To each of them the bytes of `rangeFor(its node)`, and a signal.
  template <SyncGroup G, class RangeFor>
  MSCCLPP_DEVICE void putRangesToRail(G const& group, layout::PortChannelHandle const* channels,
                                      RangeFor&& rangeFor) const {
    syncWhole(group);
    if (group.rank() != 0) return;
    for (int i = 0; i < nodes - 1; ++i) {
      ByteRange const range = rangeFor(otherNode(i));
      PortChannelDeviceHandle const channel(channels[i]);
      if (range.bytes == 0) {
        channel.signal();
      } else {
        channel.putWithSignal(range.first, range.bytes);
      }
    }
  }
  // The same bytes to each of them, and a signal.
  template <SyncGroup G>
  MSCCLPP_DEVICE void putToRail(G const& group, layout::PortChannelHandle const* channels, std::uint64_t offset,
                                std::uint64_t bytes) const {
    putRangesToRail(group, channels, [&](int) { return ByteRange{offset, bytes}; });
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void flushRail(G const& group) const {
    if (group.rank() == 0) {
      for (int i = 0; i < nodes - 1; ++i) PortChannelDeviceHandle(gather[i]).flush();
    }
    syncWhole(group);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
