// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each NodeSchedule costs, and which one is fastest: one rule for kernels and for the model. No schedule does
// without bytes that others have; what differs is how many messages follow each other, and how many go out at a time.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/layout/node_schedule.hpp"

namespace mscclpp {

// Of one rank, for a shard of so many bytes that all nodes have.
struct NodeScheduleCost {
  std::uint64_t messages = 0;   // that wait for each other
  std::uint64_t transfers = 0;  // further ones that its proxy starts
  std::uint64_t bytes = 0;      // that it sends
  std::uint64_t barriers = 0;   // of its blocks
  std::uint64_t local = 0;      // bytes read and written at home, but for what the node's ranks get
};

// The greatest power of two that is no more than `value`, from 1 on.
MSCCLPP_HOST_DEVICE constexpr std::uint64_t powerWithin(std::uint64_t value) {
  std::uint64_t power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}

// Of so many nodes, and a shard of so many bytes. Nothing where there is one node.
MSCCLPP_HOST_DEVICE constexpr NodeScheduleCost costOf(NodeSchedule schedule, std::uint64_t nodes, std::uint64_t shard) {
  if (nodes < 2) return {};
  std::uint64_t const others = nodes - 1, power = powerWithin(nodes);
  // Nodes beyond a power of two hand their sums to one within, and get the result from there.
  std::uint64_t const folds = nodes == power ? 0 : 1;
  std::uint64_t const piece = ceilDiv(shard, nodes), powerPiece = ceilDiv(shard, power);
  std::uint64_t rounds = 0;
  while (power >> (rounds + 1) != 0) ++rounds;
  switch (schedule) {
    case NodeSchedule::oneExchange:
      return {1, others - 1, others * shard, 2, nodes * shard};
    case NodeSchedule::twoExchanges:
      return {2, 2 * (others - 1), 2 * others * piece, 4, 3 * shard};
    case NodeSchedule::ring:
      return {2 * others, 0, 2 * others * piece, 2 * others + 1, 3 * others * piece + shard};
    case NodeSchedule::doubling:
      return {rounds + 2 * folds, 0, (rounds + 2 * folds) * shard, 2 * (rounds + folds) + 1,
              (3 * (rounds + folds) + 1) * shard};
    case NodeSchedule::halving:
      return {2 * (rounds + folds), 0, 2 * (power - 1) * powerPiece + 2 * folds * shard, 2 * (rounds + folds) + 1,
              3 * (power - 1) * powerPiece + (3 * folds + 1) * shard};
  }
  return {};
}

// Of the direct exchanges, or of all, which takes least time over a network that carries `messageBytes` out of a rank
// in the time that a message is on its way, and `transferBytes` in that of a further transfer. The same on all ranks
// that ask with the same figures; of those that take as long the first.
MSCCLPP_HOST_DEVICE constexpr NodeSchedule fastestSchedule(std::uint64_t nodes, std::uint64_t shard,
                                                           std::uint64_t messageBytes, std::uint64_t transferBytes,
                                                           bool directOnly = false) {
  // What is only started takes no longer than what also arrives.
  std::uint64_t const transfer = transferBytes < messageBytes ? transferBytes : messageBytes;
  auto best = NodeSchedule::oneExchange;
  std::uint64_t least = ~std::uint64_t{0};
  int const last = static_cast<int>(directOnly ? NodeSchedule::twoExchanges : NodeSchedule::halving);
  for (int i = 0; i <= last; ++i) {
    auto const schedule = static_cast<NodeSchedule>(i);
    auto const cost = costOf(schedule, nodes, shard);
    auto const time = cost.messages * messageBytes + cost.transfers * transfer + cost.bytes;
    if (time >= least) continue;
    least = time;
    best = schedule;
  }
  return best;
}

}  // namespace mscclpp
