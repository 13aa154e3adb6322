// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A ring in two levels: every rank's `in` becomes `out` of the rank after it, that of the last rank `out` of rank 0.
//
//   hierarchicalSendRecv(h, blocks, in, out, bytes)
//
// To a rank of another node data goes by this node's rank of the same rail, which sends it in one transfer; each rank
// sends as often as ranks of its rail follow on ranks of its node: once at most where ranks are counted node by node.
//
// `blocks` is the whole grid, which must fit the device at once; all its threads call, on every rank, with the same
// `bytes`, of which there is room for hierarchicalSendRecvRoom(h) in a team made for all-to-all. `in` and `out` may be
// the same, else they do not overlap. On return this rank's blocks have written `out`; who reads what other blocks
// wrote meets them first. A round of the node's team.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/collective/hierarchical.hpp"
#include "mscclpp/base/bits.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Of `data`, where a rank has one message, and of the outbox, where there is one for each node.
MSCCLPP_DEVICE std::uint64_t hierarchicalSendRecvRoom(DeviceHierarchy const& h) {
  return minimum(h.data.bytes, h.outbox.bytes / static_cast<std::uint64_t>(h.nodes)) / 16 * 16;
}

template <BlockSet B>
MSCCLPP_DEVICE void hierarchicalSendRecv(DeviceHierarchy const& h, B const& blocks, std::byte const* in, std::byte* out,
                                         std::uint64_t bytes) {
  DeviceTeam const local(h.local);
  auto const room = hierarchicalSendRecvRoom(h);
  require(bytes <= room, local.watch, -1, std::uint64_t(layout::Misuse::windowRange), room, bytes);
  if (bytes == 0) return;
  bool const leads = blocks.blockRank() == 0;
  auto const slotOf = [&](int node) { return static_cast<std::uint64_t>(node) * room; };
  {
    auto const [node, rail] = h.placeOf((h.rank() + 1) % h.size());
    DirectRound<B> const round(local, blocks);
    if (leads) h.meetRail(blocks.block());
    copy(blocks, node == h.node ? h.data.bases[rail] : h.outbox.bases[rail] + slotOf(node), in, bytes);
    round.finish();
  }
  gridBarrier(local, blocks);
  if (leads) {
    for (int i = 0; blocks.block().rank() == 0 && i < h.nodes - 1; ++i) {
      int const node = h.otherNode(i);
      int const source = (h.rankOf(node, h.local.rank) + h.size() - 1) % h.size();
      PortChannelDeviceHandle const channel(h.deal[i]);
      if (h.placeOf(source).node == h.node) {
        channel.putWithSignal(0, slotOf(node), bytes);
      } else {
        channel.signal();
      }
    }
    h.awaitRail(blocks.block());
    h.flushRail(blocks.block());
  }
  gridBarrier(local, blocks);
  copy(blocks, out, h.data.bases[h.local.rank], bytes);
  // Behind this the node's other ranks may begin to fill data and outbox again.
  gridBarrier(local, blocks);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
