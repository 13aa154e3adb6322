// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gather and scatter in two levels. Part r of a team's data is rank r's:
//
//   hierarchicalGather(h, blocks, bytes, root)    every rank's own part, into the root's data
//   hierarchicalScatter(h, blocks, bytes, root)   the parts of the root's data, each into its rank's
//
// A part crosses the network once, between the root's node and its own, on its rail; nothing goes between other nodes.
// In the root's node parts pass through the data of the rank of that rail. What else lies in the data of ranks other
// than the root is undefined afterwards.
//
// `blocks` is the whole grid, which must fit the device at once; all its threads call, on every rank with the same
// arguments. A round of the node's team.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/collective/hierarchical.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

// The parts of this rail's ranks in a team's data, which has one for every rank.
struct RailParts {
  DeviceHierarchy const& h;
  std::uint64_t bytes;

  MSCCLPP_DEVICE RailParts(DeviceHierarchy const& of, DeviceTeam const& local, std::uint64_t each)
      : h(of), bytes(each) {
    auto const end = rangeEnd(0, bytes, static_cast<std::uint64_t>(h.size()));
    require(end <= h.data.bytes, local.watch, -1, std::uint64_t(layout::Misuse::windowRange), h.data.bytes, end);
  }
  MSCCLPP_DEVICE std::uint64_t offsetOf(int node) const {
    return static_cast<std::uint64_t>(h.rankOf(node, h.local.rank)) * bytes;
  }
  // From one rank's data of this node to another's.
  template <BlockSet B>
  MSCCLPP_DEVICE void copyPart(B const& blocks, int node, int from, int to) const {
    copy(blocks, h.data.bases[to] + offsetOf(node), h.data.bases[from] + offsetOf(node), bytes);
  }
};

}  // namespace impl

template <BlockSet B>
MSCCLPP_DEVICE void hierarchicalGather(DeviceHierarchy const& h, B const& blocks, std::uint64_t bytes, int root) {
  DeviceTeam const local(h.local);
  impl::RailParts const parts(h, local, bytes);
  auto const place = h.placeOf(root);
  bool const leads = blocks.blockRank() == 0;
  auto const toRoot = [&](int node) {
    if (local.rank != place.rail) parts.copyPart(blocks, node, local.rank, place.rail);
  };
  DirectRound<B> const round(local, blocks);
  if (h.node == place.node) {
    if (leads) h.signalRail(blocks.block());  // may write here
    toRoot(h.node);
    if (leads) h.awaitRail(blocks.block());
    gridBarrier(local, blocks);
    for (int node = 0; node < h.nodes; ++node) {
      if (node != h.node) toRoot(node);
    }
  } else if (leads && blocks.block().rank() == 0) {
    auto const channel = h.gatherChannel(place.node);
    channel.wait();
    channel.putWithSignal(parts.offsetOf(h.node), bytes);
  }
  round.finish();
  if (leads) h.flushRail(blocks.block());
}

template <BlockSet B>
MSCCLPP_DEVICE void hierarchicalScatter(DeviceHierarchy const& h, B const& blocks, std::uint64_t bytes, int root) {
  DeviceTeam const local(h.local);
  impl::RailParts const parts(h, local, bytes);
  auto const place = h.placeOf(root);
  bool const leads = blocks.blockRank() == 0;
  DirectRound<B> const round(local, blocks);
  if (h.node == place.node) {
    for (int node = 0; local.rank != place.rail && node < h.nodes; ++node) {
      parts.copyPart(blocks, node, place.rail, local.rank);
    }
    if (leads) h.awaitRail(blocks.block());  // which may be written to
    gridBarrier(local, blocks);
    if (leads) {
      h.putRangesToRail(blocks.block(), h.gather, [&](int node) { return ByteRange{parts.offsetOf(node), bytes}; });
    }
  } else {
    if (leads) h.awaitNode(blocks.block(), place.node);
    gridBarrier(local, blocks);
  }
  round.finish();
  if (leads) h.flushRail(blocks.block());
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
