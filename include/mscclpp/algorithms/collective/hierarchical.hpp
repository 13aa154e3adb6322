// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives in two levels: mapped memory inside a node, port channels between the ranks of one rail. The parts of the
// rails travel at the same time.
//
//   hierarchicalAllGather(h, blocks, bytes)       part r of the data is rank r's; the own part lies there already
//   hierarchicalAllReduce<T, Op>(h, blocks, n)    the first n elements of the data, in place
//   hierarchicalAllReduce<T, Op>(h, blocks, n, s) the same by that NodeSchedule
//   hierarchicalReduce<T, Op>(h, blocks, n, root) the same into the root's data only; those of others stay
//   hierarchicalReduceScatter<T, Op>(h, blocks, View{y, n})
//                                                 part r of all ranks' data is added up into rank r's `y`; parts begin
//                                                 at multiples of hierarchicalPartBytes<T>(n)
//   hierarchicalBroadcast(h, blocks, bytes, root)
//                                                 the first bytes of the root's data, into everybody's
//
// All-gather and broadcast send each byte once to each other node, reduce-scatter what a node has summed up for its
// ranks. So does all-reduce with what each node has summed up, one message long, while that is little; else each node
// reduces one piece and sends the result to all, two messages long, but only about two bytes for each byte of the data
// however many nodes there are. The results are the same. Reduce goes the same ways, but only to the root's node what
// is for the root: a byte of each other node's for each byte of the data, and in two messages no more than about two
// into the root's. Where there are so many nodes that starting a message to each takes long, all-reduce goes by a table
// of steps between pairs of nodes or round a ring (layout/node_schedule.hpp); fastestSchedule() says when.
//
// `blocks` is the whole grid, which must fit the device at once; all its threads call. Every rank calls with the same
// arguments. A round of the node's team. The nodes' sums are rounded to T before they are combined, in the order of the
// nodes; by a table, after each step, of the two sums that of the lower node first, and Op's finish() is given a sum so
// rounded, so Avg goes by no table unless it is told to. Every rank gets the same bits.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/device_hierarchy.hpp"
#include "mscclpp/algorithms/core/node_schedule.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/transport/peer_memory.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/device/team.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/layout/hierarchy_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <BlockSet B>
MSCCLPP_DEVICE void hierarchicalAllGather(DeviceHierarchy const& h, B const& blocks, std::uint64_t bytes) {
  DeviceTeam const local(h.local);
  auto const end = rangeEnd(0, bytes, static_cast<std::uint64_t>(h.size()));
  require(end <= h.data.bytes, local.watch, -1, std::uint64_t(layout::Misuse::windowRange), h.data.bytes, end);
  bool const leads = blocks.blockRank() == 0;
  DirectRound<B> const round(local, blocks);
  auto const own = static_cast<std::uint64_t>(h.rank()) * bytes;
  if (leads) {
    h.meetRail(blocks.block());
    h.putToRail(blocks.block(), h.gather, own, bytes);
  }
  auto const toNode = [&](std::uint64_t offset) {
    for (int distance = 1; distance < local.size; ++distance) {
      auto const peer = local.peerAt(distance, local.size);
      copy(blocks, h.data.bases[peer] + offset, h.data.bases[local.rank] + offset, bytes);
    }
  };
  toNode(own);
  if (leads) h.awaitRail(blocks.block());
  gridBarrier(local, blocks);
  for (int node = 0; node < h.nodes; ++node) {
    if (node != h.node) toNode(static_cast<std::uint64_t>(h.rankOf(node, local.rank)) * bytes);
  }
  round.finish();
  if (leads) h.flushRail(blocks.block());
}

namespace impl {

// Of data in whole payloads, what one rail reduces: the last shards may be shorter, or empty.
struct RailShard {
  std::uint64_t largest;  // the same on all ranks
  std::uint64_t first;
  std::uint64_t bytes;

  // Of that one of equal pieces, but for the last ones; in the shard.
  MSCCLPP_DEVICE ByteRange pieces(std::uint64_t begin, std::uint64_t count, std::uint64_t all) const {
    constexpr std::uint64_t step = sizeof(Payload<4>);
    auto const each = ceilDiv<std::uint64_t>(largest, step * all) * step;
    auto const from = minimum(each * begin, bytes);
    return {from, minimum(each * count, bytes - from)};
  }
};
MSCCLPP_DEVICE RailShard shardOf(DeviceHierarchy const& h, std::uint64_t bytes) {
  constexpr std::uint64_t step = sizeof(Payload<4>);
  auto const total = roundUp<std::uint64_t>(bytes, step);
  auto const room = h.reducibleBytes();
  require(total <= room, h.local.watch, -1, std::uint64_t(layout::Misuse::windowRange), room, total);
  auto const rails = static_cast<unsigned>(h.local.size), rail = static_cast<unsigned>(h.local.rank);
  auto const largest = ceilDiv<std::uint64_t>(total, step * rails) * step;
  auto const first = minimum<std::uint64_t>(largest * rail, total);
  return {largest, first, minimum<std::uint64_t>(largest, total - first)};
}

// The arithmetic of collectives in two levels, by whole payloads: each node's sums lie in its own slot of the inbox,
// from which the other nodes get what they need into the same place of theirs.
template <class R, BlockSet B>
struct NodeSums {
  static constexpr std::uint64_t step = sizeof(Payload<4>);

  DeviceHierarchy const& h;
  DeviceTeam const& local;
  B const& blocks;

  MSCCLPP_DEVICE bool leads() const { return blocks.blockRank() == 0; }
  MSCCLPP_DEVICE std::uint64_t slotOf(int node) const { return static_cast<std::uint64_t>(node) * h.slotBytes; }

  template <class Act>
  MSCCLPP_DEVICE void forEach(ByteRange const& range, Act const& act) const {
    std::uint64_t const stride = std::uint64_t{blocks.size()} * step;
    auto const end = range.first + range.bytes;
    for (std::uint64_t at = range.first + std::uint64_t{blocks.rank()} * step; at < end; at += stride) act(at);
  }

  // Into the own slot: of the node's ranks, what lies so far into their data. `first`: of the slot in the data.
  MSCCLPP_DEVICE void addUpNode(ByteRange const& range, std::uint64_t first) const {
    forEach(range, [&](std::uint64_t at) {
      auto totals = read(h.data.bases[0], first + at);
      for (int rank = 1; rank < local.size; ++rank) R::combine(totals, read(h.data.bases[rank], first + at), rank);
      *slot(h.node, at) = R::template narrow<4>(totals);
    });
  }
  // Of all nodes, at such a place of their slots here.
  MSCCLPP_DEVICE Payload<4> sumOfAll(std::uint64_t at) const {
    auto totals = R::widen(*slot(0, at));
    for (int node = 1; node < h.nodes; ++node) R::combine(totals, R::widen(*slot(node, at)), node);
    R::finish(totals, h.size());
    return R::template narrow<4>(totals);
  }
  MSCCLPP_DEVICE Payload<4>* slot(int node, std::uint64_t at) const {
    return reinterpret_cast<Payload<4>*>(h.inbox + slotOf(node) + at);
  }
  // Into the data of a rank of the node.
  MSCCLPP_DEVICE void give(int rank, std::uint64_t at, Payload<4> const& result) const {
    *reinterpret_cast<Payload<4>*>(h.data.bases[rank] + at) = result;
  }

  // Each node's own slot is filled; `rangeFor(node)` of it goes to the same place of that node's inbox.
  template <class RangeFor>
  MSCCLPP_DEVICE void exchange(RangeFor const& rangeFor) const {
    gridBarrier(local, blocks);
    if (leads()) {
      h.putRangesToRail(blocks.block(), h.exchange, [&](int node) {
        ByteRange const range = rangeFor(node);
        return ByteRange{slotOf(h.node) + range.first, range.bytes};
      });
      h.awaitRail(blocks.block());
    }
    gridBarrier(local, blocks);
  }

 private:
  MSCCLPP_DEVICE static auto read(std::byte const* base, std::uint64_t at) {
    return R::widen(*reinterpret_cast<Payload<4> const*>(base + at));
  }
};

}  // namespace impl

// In a root's place: everybody gets the result.
inline constexpr int everyRank = -1;

namespace impl {

// By direct exchanges between the nodes: one, or two.
template <Number T, class Op, BlockSet B>
MSCCLPP_DEVICE void reduceDirectly(DeviceHierarchy const& h, B const& blocks, RailShard const& shard, int root,
                                   bool twice) {
  using Sums = NodeSums<ReductionFor<T, void, Op, 0>, B>;
  DeviceTeam const local(h.local);
  Sums const sums{h, local, blocks};
  // In two exchanges each node reduces one piece.
  auto const pieceOf = [&](int node) {
    return shard.pieces(static_cast<unsigned>(node), 1, static_cast<unsigned>(h.nodes));
  };
  bool const all = root == everyRank;
  auto const place = all ? NodeAndRail{} : h.placeOf(root);
  auto const gets = [&](int node) { return all || node == place.node; };
  auto const toNode = [&](std::uint64_t at, Payload<4> const& result) {
    for (int rank = 0; rank < local.size; ++rank) {
      if (all || rank == place.rail) sums.give(rank, shard.first + at, result);
    }
  };
  ByteRange const whole{0, shard.bytes};
  auto const toWhoGets = [&](int node, ByteRange const& range) { return gets(node) ? range : ByteRange{}; };
  DirectRound<B> const round(local, blocks);
  if (sums.leads()) h.meetRail(blocks.block());
  sums.addUpNode(whole, shard.first);
  sums.exchange([&](int node) { return twice ? pieceOf(node) : toWhoGets(node, whole); });
  sums.forEach(twice ? pieceOf(h.node) : toWhoGets(h.node, whole), [&](std::uint64_t at) {
    auto const result = sums.sumOfAll(at);
    // In place of what this node has summed up: nobody else writes there, nor has asked for that piece.
    if (twice) *sums.slot(h.node, at) = result;
    if (gets(h.node)) toNode(at, result);
  });
  if (twice) {
    sums.exchange([&](int node) { return toWhoGets(node, pieceOf(h.node)); });
    for (int node = 0; node < h.nodes; ++node) {
      if (node == h.node) continue;
      sums.forEach(toWhoGets(h.node, pieceOf(node)), [&](std::uint64_t at) { toNode(at, *sums.slot(node, at)); });
    }
  }
  round.finish();
  if (sums.leads()) h.flushRail(blocks.block());
}

// By the steps of a table. Only neighbours in it meet: each place of a slot is written by one message of a call, or by
// a result after everybody has got what was there, so that steps need no answers.
template <Number T, class Op, BlockSet B>
MSCCLPP_DEVICE void allReduceBySteps(DeviceHierarchy const& h, B const& blocks, RailShard const& shard,
                                     layout::NodeStepsHandle const& table) {
  using R = ReductionFor<T, void, Op, 0>;
  DeviceTeam const local(h.local);
  NodeSums<R, B> const sums{h, local, blocks};
  bool const acts = sums.leads() && blocks.block().rank() == 0;
  auto const physical = [&](int node, int slot) { return (node + slot) % h.nodes; };
  auto const rangeOf = [&](int first, int pieces) {
    return shard.pieces(static_cast<unsigned>(first), static_cast<unsigned>(pieces),
                        static_cast<unsigned>(table.pieces));
  };
  ByteRange const whole{0, shard.bytes};
  DirectRound<B> const round(local, blocks);
  if (acts) {
    for (int i = 0; i < table.neighbourCount; ++i) h.exchangeChannel(table.neighbours[i]).signal();
    for (int i = 0; i < table.neighbourCount; ++i) h.exchangeChannel(table.neighbours[i]).wait();
  }
  sums.addUpNode(whole, shard.first);
  bool worked = true;  // all blocks, since they last met
  for (int i = 0; i < table.count; ++i) {
    auto const& step = table.steps[i];
    if (worked) gridBarrier(local, blocks);
    worked = step.receiveFrom >= 0 && step.addSlot >= 0;
    if (acts && step.sendTo >= 0) {
      auto const range = rangeOf(step.sendFirst, step.sendPieces);
      auto const channel = h.exchangeChannel(step.sendTo);
      if (range.bytes == 0) {
        channel.signal();
      } else {
        channel.putWithSignal(sums.slotOf(physical(step.sendTo, step.sendSlot)) + range.first,
                              sums.slotOf(physical(h.node, step.sendFrom)) + range.first, range.bytes);
      }
    }
    if (acts && step.receiveFrom >= 0) h.exchangeChannel(step.receiveFrom).wait();
    if (!worked) continue;
    gridBarrier(local, blocks);
    sums.forEach(rangeOf(step.receiveFirst, step.receivePieces), [&](std::uint64_t at) {
      auto* const arrived = sums.slot(physical(h.node, step.receiveSlot), at);
      auto totals = R::widen(*sums.slot(physical(h.node, step.addSlot), at));
      auto added = R::widen(*arrived);
      if (step.receiveFrom < h.node) {
        auto const own = totals;
        totals = added;
        added = own;
      }
      R::combine(totals, added, 1);
      *arrived = R::template narrow<4>(totals);
    });
  }
  gridBarrier(local, blocks);
  sums.forEach(whole, [&](std::uint64_t at) {
    auto totals = R::widen(*sums.slot(physical(h.node, table.resultSlot), at));
    R::finish(totals, h.size());
    auto const result = R::template narrow<4>(totals);
    for (int rank = 0; rank < local.size; ++rank) sums.give(rank, shard.first + at, result);
  });
  round.finish();
  if (acts) {
    for (int i = 0; i < table.neighbourCount; ++i) h.exchangeChannel(table.neighbours[i]).flush();
  }
  if (sums.leads()) syncWhole(blocks.block());
}

}  // namespace impl

template <Number T, class Op, BlockSet B>
MSCCLPP_DEVICE void hierarchicalReduce(DeviceHierarchy const& h, B const& blocks, std::uint64_t count, int root) {
  bool const twice = h.scheduleFor(count * sizeof(T), true) == NodeSchedule::twoExchanges;
  impl::reduceDirectly<T, Op>(h, blocks, impl::shardOf(h, count * sizeof(T)), root, twice);
}

template <Number T, class Op, BlockSet B>
MSCCLPP_DEVICE void hierarchicalAllReduce(DeviceHierarchy const& h, B const& blocks, std::uint64_t count,
                                          NodeSchedule schedule) {
  auto const shard = impl::shardOf(h, count * sizeof(T));
  if (schedule <= NodeSchedule::twoExchanges) {
    impl::reduceDirectly<T, Op>(h, blocks, shard, everyRank, schedule == NodeSchedule::twoExchanges);
  } else {
    impl::allReduceBySteps<T, Op>(h, blocks, shard, h.stepsOf(schedule));
  }
}

template <Number T, class Op, BlockSet B>
MSCCLPP_DEVICE void hierarchicalAllReduce(DeviceHierarchy const& h, B const& blocks, std::uint64_t count) {
  hierarchicalAllReduce<T, Op>(h, blocks, count, h.scheduleFor(count * sizeof(T), std::same_as<Op, Avg>));
}

// Bytes from one part to the next of a reduce-scatter of so many elements each.
template <Number T>
MSCCLPP_HOST_DEVICE constexpr std::uint64_t hierarchicalPartBytes(std::uint64_t count) {
  return roundUp<std::uint64_t>(count * sizeof(T), sizeof(Payload<4>));
}

template <Number T, class Op, BlockSet B>
MSCCLPP_DEVICE void hierarchicalReduceScatter(DeviceHierarchy const& h, B const& blocks, View<T> out) {
  using Sums = impl::NodeSums<ReductionFor<T, void, Op, 0>, B>;
  DeviceTeam const local(h.local);
  Sums const sums{h, local, blocks};
  auto const each = hierarchicalPartBytes<T>(out.count);
  auto const end = each * static_cast<unsigned>(h.size()), room = h.reducibleBytes();
  require(end <= room, local.watch, -1, std::uint64_t(layout::Misuse::windowRange), room, end);
  // What this rail's rank of a node gets lies in that node's piece of a slot.
  auto const pieceOf = [&](int node) { return ByteRange{each * static_cast<unsigned>(node), each}; };
  DirectRound<B> const round(local, blocks);
  if (sums.leads()) h.meetRail(blocks.block());
  for (int node = 0; node < h.nodes; ++node) {
    auto const piece = pieceOf(node);
    auto const part = each * static_cast<unsigned>(h.rankOf(node, local.rank));
    sums.addUpNode(piece, part - piece.first);
  }
  sums.exchange(pieceOf);
  PayloadWriter<T, 4, 16> const writer(out);
  auto const own = pieceOf(h.node);
  sums.forEach(own, [&](std::uint64_t at) {
    writer.write(writer.window(at - own.first, sizeof(Payload<4>)), 0, sums.sumOfAll(at));
  });
  round.finish();
  if (sums.leads()) h.flushRail(blocks.block());
}

template <BlockSet B>
MSCCLPP_DEVICE void hierarchicalBroadcast(DeviceHierarchy const& h, B const& blocks, std::uint64_t bytes, int root) {
  DeviceTeam const local(h.local);
  require(bytes <= h.data.bytes, local.watch, -1, std::uint64_t(layout::Misuse::windowRange), h.data.bytes, bytes);
  auto const [node, rail] = h.placeOf(root);
  // A rail carries one shard to all nodes.
  constexpr std::uint64_t step = sizeof(Payload<4>);
  auto const shard = ceilDiv<std::uint64_t>(bytes, step * static_cast<unsigned>(local.size)) * step;
  auto const first = minimum<std::uint64_t>(shard * static_cast<unsigned>(local.rank), bytes);
  auto const mine = minimum<std::uint64_t>(shard, bytes - first);
  bool const leads = blocks.blockRank() == 0;
  auto const copyFrom = [&](int from, int to) {
    copy(blocks, h.data.bases[to] + first, h.data.bases[from] + first, mine);
  };
  DirectRound<B> const round(local, blocks);
  if (h.node == node) {
    if (local.rank != rail) copyFrom(rail, local.rank);
    if (leads) h.awaitRail(blocks.block());  // which may be written to
    gridBarrier(local, blocks);
    if (leads) h.putToRail(blocks.block(), h.gather, first, mine);
  } else {
    if (leads) h.awaitNode(blocks.block(), node);
    gridBarrier(local, blocks);
  }
  for (int distance = 1; distance < local.size; ++distance) {
    auto const peer = local.peerAt(distance, local.size);
    if (h.node != node || peer != rail) copyFrom(local.rank, peer);
  }
  round.finish();
  if (leads) h.flushRail(blocks.block());
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
