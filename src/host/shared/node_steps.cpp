// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/shared/node_steps.hpp"

#include <bit>
#include <set>

#include "base/format.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {
namespace {

using layout::NodeStep;

constexpr int none = -1;

NodeSteps ringSteps(int nodes, int node) {
  NodeSteps of{.pieces = nodes, .resultSlot = nodes > 1 ? 1 : 0};
  int const next = (node + 1) % nodes, last = (node + nodes - 1) % nodes;
  auto const piece = [&](int at) { return (at % nodes + nodes) % nodes; };
  // Sums, of which the own piece goes out first; then results, of which the last sum is one.
  for (bool const sums : {true, false}) {
    int const first = sums ? node : node + 1;
    for (int i = 0; i < nodes - 1; ++i) {
      of.steps.push_back({.sendTo = next,
                          .sendFirst = piece(first - i),
                          .sendPieces = 1,
                          .sendFrom = sums && i == 0 ? 0 : 1,
                          .sendSlot = 1,
                          .receiveFrom = last,
                          .receiveFirst = piece(first - i - 1),
                          .receivePieces = 1,
                          .receiveSlot = 1,
                          .addSlot = sums ? 0 : none});
    }
  }
  return of;
}

// Between the nodes within a power of two, in halves or whole; each node beyond folds into one of them.
NodeSteps foldedSteps(int nodes, int node, bool halves) {
  int const power = static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)));
  int const pieces = halves ? power : 1;
  int const folds = nodes == power ? 0 : 1;
  int const lastSlot = folds + std::countr_zero(static_cast<unsigned>(power));
  NodeSteps of{.pieces = pieces};
  auto& steps = of.steps;
  int& slot = of.resultSlot;  // of the sum so far
  auto const send = [&](int to, int there) {
    return NodeStep{.sendTo = to, .sendPieces = pieces, .sendFrom = slot, .sendSlot = there};
  };
  auto const receive = [&](int from, int add) {
    return NodeStep{.receiveFrom = from, .receivePieces = pieces, .receiveSlot = 1, .addSlot = add};
  };
  if (node >= power) {
    steps = {send(node - power, 1), receive(node - power, none)};
    slot = 1;
    return of;
  }
  bool const hosts = node + power < nodes;
  if (hosts) {
    steps.push_back(receive(node + power, 0));
    slot = 1;
  }
  // Of an aligned range, each of a pair keeps the half that its own piece lies in; whole sums have but one piece.
  for (int i = 1; i < power; i *= 2) {
    int const distance = halves ? power / 2 / i : i;
    int const span = halves ? distance : 1;
    auto const rangeOf = [&](int which) { return halves ? which & ~(distance - 1) : 0; };
    int const peer = node ^ distance, arrives = folds + std::countr_zero(static_cast<unsigned>(i)) + 1;
    steps.push_back({.sendTo = peer,
                     .sendFirst = rangeOf(peer),
                     .sendPieces = span,
                     .sendFrom = slot,
                     .sendSlot = arrives,
                     .receiveFrom = peer,
                     .receiveFirst = rangeOf(node),
                     .receivePieces = span,
                     .receiveSlot = arrives,
                     .addSlot = slot});
    slot = arrives;
  }
  for (int half = 1; halves && half < power; half *= 2) {
    int const peer = node ^ half;
    steps.push_back({.sendTo = peer,
                     .sendFirst = node & ~(half - 1),
                     .sendPieces = half,
                     .sendFrom = lastSlot,
                     .sendSlot = lastSlot,
                     .receiveFrom = peer,
                     .receiveFirst = peer & ~(half - 1),
                     .receivePieces = half,
                     .receiveSlot = lastSlot});
  }
  if (hosts) steps.push_back(send(node + power, 1));
  return of;
}

}  // namespace

NodeSteps nodeSteps(NodeSchedule schedule, int nodes, int node) {
  if (nodes < 1 || node < 0 || node >= nodes) {
    fail(ErrorCode::invalidUsage, "steps of node {} among {}: allowed are 1 node or more, and a node from 0 to {}",
         node, nodes, nodes - 1);
  }
  auto result = [&] {
    switch (schedule) {
      case NodeSchedule::ring:
        return ringSteps(nodes, node);
      case NodeSchedule::doubling:
        return foldedSteps(nodes, node, false);
      case NodeSchedule::halving:
        return foldedSteps(nodes, node, true);
      default:
        fail(ErrorCode::invalidUsage, "steps of {}: a direct exchange has no table; allowed are {}, {} and {}",
             nameOf(schedule), nameOf(NodeSchedule::ring), nameOf(NodeSchedule::doubling),
             nameOf(NodeSchedule::halving));
    }
  }();
  std::set<std::int32_t> met;
  for (auto const& step : result.steps) {
    for (auto const peer : {step.sendTo, step.receiveFrom}) {
      if (peer >= 0) met.insert(peer);
    }
  }
  result.neighbours.assign(met.begin(), met.end());
  return result;
}

}  // namespace mscclpp
