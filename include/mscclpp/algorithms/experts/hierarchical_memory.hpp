// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What HierarchicalDispatch and HierarchicalCombine work with: the memory of host/fused/hierarchical_experts.hpp in a
// kernel, and the exchange between the nodes' ranks of one rail.
//
//   DeviceHierarchicalExperts const& experts     a parameter of the kernel; HierarchicalExperts::deviceHandle()
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/device_hierarchy.hpp"
#include "mscclpp/algorithms/experts/expert_memory.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/layout/hierarchical_experts_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Where an expert is.
struct ExpertPlace {
  int node;
  std::int32_t expert;  // among the node's
};

// Taken by value and passed on by reference, as DeviceExperts.
struct DeviceHierarchicalExperts {
  DeviceExperts node;  // of this node's ranks
  DeviceHierarchy hierarchy;
  layout::HierarchicalExpertsLayout layout;
  std::int32_t const* places;

  DeviceHierarchicalExperts() = default;
  MSCCLPP_HOST_DEVICE DeviceHierarchicalExperts(layout::HierarchicalExpertsHandle const& handle)
      : node(handle.node), hierarchy(handle.hierarchy), layout(handle.layout), places(handle.places) {}

  // Of all ranks'; refuses what is none.
  template <std::integral I>
  MSCCLPP_DEVICE ExpertPlace placeOf(I expert) const {
    requireAlone(static_cast<std::uint64_t>(expert) < layout.limits.experts, node.flags.watch, -1,
                 std::uint64_t(layout::Misuse::expert), layout.limits.experts, static_cast<std::uint64_t>(expert));
    auto const rank = node.rankOf(expert);
    auto const place = static_cast<std::uint32_t>(places[rank]);
    auto const rails = static_cast<std::uint32_t>(hierarchy.rails());
    auto const perRank = node.layout.perRank;
    auto const among = static_cast<std::uint32_t>(expert) - static_cast<std::uint32_t>(rank) * perRank;
    return {static_cast<int>(place / rails), static_cast<std::int32_t>(place % rails * perRank + among)};
  }

  // Tokens of all nodes are numbered node by node.
  MSCCLPP_DEVICE std::uint32_t tokenOf(int ofNode, std::uint32_t token) const {
    return static_cast<std::uint32_t>(ofNode) * layout.limits.tokens + token;
  }
  MSCCLPP_DEVICE std::uint32_t tokens() const { return tokenOf(hierarchy.nodes, 0); }

  // Where slots have `bytes` bytes, as all ranks have them at a time.
  MSCCLPP_DEVICE std::uint64_t slot(std::uint32_t token, std::uint32_t bytes) const {
    return layout.slots + std::uint64_t{token} * bytes;
  }
  MSCCLPP_DEVICE std::int32_t* entry(std::uint64_t table, int ofNode, std::uint32_t token) const {
    return at<std::int32_t>(table + std::uint64_t{tokenOf(ofNode, token)} * layout.entryBytes());
  }
  template <class T>
  MSCCLPP_DEVICE T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(hierarchy.data.bases[hierarchy.local.rank] + offset);
  }

  // Of the tokens of all nodes that came here, for which of this node's experts they are.
  MSCCLPP_DEVICE Routing<std::int32_t> relayed(bool weighted) const {
    auto const* const first = entry(layout.tables, 0, 0);
    auto const topK = layout.limits.topK;
    return {.experts = first,
            .weights = weighted ? reinterpret_cast<float const*>(first + topK) : nullptr,
            .tokens = tokens(),
            .topK = topK,
            .gap = topK};
  }
};

namespace impl {

// A round between the ranks of a rail, in a kernel of all blocks of a grid.
template <BlockSet B>
class RailRound {
 public:
  // The kernel ahead in the stream has ended: the others may write what this rank's kernel reads.
  MSCCLPP_DEVICE RailRound(DeviceHierarchicalExperts const& experts, B const& blocks)
      : experts_(experts), blocks_(blocks) {
    if (leads()) experts.hierarchy.signalRail(blocks.block());
  }

  // All blocks: behind what they have written, f(node, begin, end, channel) by one thread for each run of this rail's
  // tokens that `table` has experts for, of each other node, after before(node, channel); then what those have sent is
  // there.
  template <class Before, class F>
  MSCCLPP_DEVICE void exchange(std::uint64_t table, Before const& before, F const& f) const {
    auto const& h = experts_.hierarchy;
    gridBarrier(h.local, blocks_);
    if (leads()) {
      auto const warps = Warps::ofBlock();
      auto const others = static_cast<std::uint32_t>(h.nodes - 1);
      for (auto i = warps.rank; i < others; i += warps.count) sendTo(static_cast<int>(i), table, before, f);
      syncWhole(blocks_.block());
      h.awaitRail(blocks_.block());
    }
    gridBarrier(h.local, blocks_);
  }

  // What this rank has sent has gone.
  MSCCLPP_DEVICE void end() const {
    if (leads()) experts_.hierarchy.flushRail(blocks_.block());
  }

 private:
  MSCCLPP_DEVICE bool leads() const { return blocks_.blockRank() == 0; }

  template <class Before, class F>
  MSCCLPP_DEVICE void sendTo(int other, std::uint64_t table, Before const& before, F const& f) const {
    auto const& h = experts_.hierarchy;
    auto const warp = thisWarp();
    int const node = h.otherNode(other);
    bool const acts = warp.rank() == 0;
    PortChannelDeviceHandle const channel(h.gather[other]);
    if (acts) {
      channel.wait();
      before(node, channel);
    }
    syncWhole(warp);
    auto const tokens = experts_.layout.limits.tokens;
    std::uint32_t begin = tokens;  // of the run; this: none
    for (std::uint32_t first = 0; first < tokens; first += arch::warpSize) {
      auto const token = first + warp.rank();
      auto const bits = arch::ballot(token < tokens && isSent(experts_.entry(table, node, token)));
      for (std::uint32_t i = 0; i < arch::warpSize; ++i) {
        bool const goes = (bits >> i & 1) != 0;
        if (goes && begin == tokens) begin = first + i;
        if (goes || begin == tokens) continue;
        if (acts) f(node, begin, first + i, channel);
        begin = tokens;
      }
    }
    if (!acts) return;
    if (begin != tokens) f(node, begin, tokens, channel);
    channel.signal();
  }
  MSCCLPP_DEVICE bool isSent(std::int32_t const* entry) const {
    bool any = false;
    for (std::uint32_t k = 0; k < experts_.layout.limits.topK; ++k) any = any || entry[k] >= 0;
    return any;
  }

  DeviceHierarchicalExperts const& experts_;
  B blocks_;
};

}  // namespace impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
