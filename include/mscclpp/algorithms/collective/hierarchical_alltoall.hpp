// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-to-all in two levels: part p of this rank's `in` becomes the part of this rank in `out` of rank p.
//
//   hierarchicalAllToAll(h, blocks, in, EqualParts{n}, out, EqualParts{n})
//   hierarchicalAllToAll(h, blocks, in, inParts, out, outParts)              VariableParts, as for AllToAll
//
// What the ranks of a node have for one rail of the other nodes they collect with their rank of that rail, which sends
// it in one transfer to each other node; parts of different counts in one for each, which tells its count. So a rank
// talks to nodes - 1 others over the network, where each rank alone would talk to all ranks there.
//
// `blocks` is the whole grid, which must fit the device at once; all its threads call, on every rank. `in` and `out`
// may be the same where all parts have one size, and otherwise do not overlap. A part has at most `partBytes` of the
// team, which was made for all-to-all. On return this rank's blocks have written `out`; who reads what other blocks
// wrote meets them first. A round of the node's team.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/collective/hierarchical.hpp"
#include "mscclpp/algorithms/core/parts.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/base/bits.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

// Where parts lie on their way. Ranks are counted node by node there, rail by rail.
struct Dealing {
  DeviceHierarchy const& h;
  std::uint64_t slot;  // bytes from one part to the next

  MSCCLPP_DEVICE int place(int node, int rail) const { return node * h.rails() + rail; }
  MSCCLPP_DEVICE std::uint64_t offset(int node, int rail) const {
    return static_cast<std::uint64_t>(place(node, rail)) * slot;
  }
  // What lies in the slots of a node's rank: behind its outbox.
  MSCCLPP_DEVICE std::uint64_t* sizes(int rail) const {
    return reinterpret_cast<std::uint64_t*>(h.outbox.bases[rail] + static_cast<std::uint64_t>(h.size()) * h.partBytes);
  }

  // To the ranks of this node what they keep, or send on.
  template <BlockSet B, class T, Parts P>
  MSCCLPP_DEVICE void handOut(B const& blocks, T const* in, P const& parts) const {
    for (int distance = 0; distance < h.rails(); ++distance) {
      int const rail = (h.local.rank + distance) % h.rails();
      for (int node = 0; node < h.nodes; ++node) {
        auto const part = partOf(in, parts, h.rankOf(node, rail));
        bool const stays = node == h.node;
        auto* const to =
            stays ? h.data.bases[rail] + offset(node, h.local.rank) : h.outbox.bases[rail] + offset(node, h.local.rank);
        copy(blocks, to, reinterpret_cast<std::byte const*>(part.data), part.bytes());
        if (!P::equal && !stays && blocks.rank() == 0) sizes(rail)[place(node, h.local.rank)] = part.bytes();
      }
    }
  }

  // One thread: what was collected here for the same rail of the other nodes, each in its slot there.
  template <bool Equal>
  MSCCLPP_DEVICE void sendOn() const {
    for (int i = 0; i < h.nodes - 1; ++i) {
      int const node = h.otherNode(i);
      PortChannelDeviceHandle const channel(h.deal[i]);
      if constexpr (Equal) {
        channel.putWithSignal(offset(h.node, 0), offset(node, 0), static_cast<std::uint64_t>(h.rails()) * slot);
      } else {
        for (int rail = 0; rail < h.rails(); ++rail) {
          auto const bytes = sizes(h.local.rank)[place(node, rail)];
          if (bytes != 0) channel.put(offset(h.node, rail), offset(node, rail), bytes);
        }
        channel.signal();
      }
    }
  }

  template <BlockSet B, class T, Parts P>
  MSCCLPP_DEVICE void takeOut(B const& blocks, T* out, P const& parts) const {
    for (int node = 0; node < h.nodes; ++node) {
      for (int rail = 0; rail < h.rails(); ++rail) {
        auto const part = partOf(out, parts, h.rankOf(node, rail));
        copy(blocks, reinterpret_cast<std::byte*>(part.data), h.data.bases[h.local.rank] + offset(node, rail),
             part.bytes());
      }
    }
  }
};

}  // namespace impl

template <BlockSet B, class T, Parts P>
MSCCLPP_DEVICE void hierarchicalAllToAll(DeviceHierarchy const& h, B const& blocks, T const* in, P const& inParts,
                                         T* out, P const& outParts) {
  DeviceTeam const local(h.local);
  requireSameCount(local, inParts.largest(), outParts.largest());
  auto const largest = rangeEnd(0, inParts.largest(), sizeof(T));
  auto const room = h.outbox.bytes == 0 ? 0 : h.partBytes;
  require(largest <= room, local.watch, -1, std::uint64_t(layout::Misuse::windowRange), room, largest);
  if (largest == 0) return;
  bool const leads = blocks.blockRank() == 0;
  // Equal parts lie end to end, so that those for one rank are one transfer.
  impl::Dealing const dealing{h, P::equal ? largest : h.partBytes};
  {
    DirectRound<B> const round(local, blocks);
    if (leads) h.meetRail(blocks.block());
    dealing.handOut(blocks, in, inParts);
    round.finish();
  }
  gridBarrier(local, blocks);
  if (leads) {
    if (blocks.block().rank() == 0) dealing.sendOn<P::equal>();
    h.awaitRail(blocks.block());
    h.flushRail(blocks.block());
  }
  gridBarrier(local, blocks);
  dealing.takeOut(blocks, out, outParts);
  // Behind this the node's other ranks may begin to fill the slots again.
  gridBarrier(local, blocks);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
