// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tables of ring, doubling and halving, carried out by counting: who has whose sums when, and how long it takes.
#include "host/shared/node_steps.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/algorithms/core/node_schedule.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/layout/hierarchy_handle.hpp"

using namespace mscclpp;

namespace {

constexpr std::array tables{NodeSchedule::ring, NodeSchedule::doubling, NodeSchedule::halving};

using Sum = std::multiset<int>;  // of which nodes

struct Message {
  std::vector<Sum> pieces;
  int first;
  int slot;
  std::uint64_t sent;  // time
};

struct Outcome {
  std::uint64_t time = 0;
  std::string wrong;
};

// Each node's steps in order, as far as what they receive is there. A message takes `latency` and a unit for each byte.
Outcome carryOut(NodeSchedule schedule, int nodes, std::uint64_t shard, std::uint64_t latency) {
  Outcome outcome;
  auto const fault = [&](std::string text) {
    if (outcome.wrong.empty()) outcome.wrong = std::move(text);
  };
  Sum all;
  for (int node = 0; node < nodes; ++node) all.insert(node);
  std::vector<NodeSteps> steps;
  std::vector<std::map<std::pair<int, int>, Sum>> sums;  // by slot and piece
  std::vector<std::size_t> at(all.size(), 0);
  std::vector<std::uint64_t> time(all.size(), 0);
  std::map<std::pair<int, int>, std::deque<Message>> network;
  for (int node = 0; node < nodes; ++node) {
    steps.push_back(nodeSteps(schedule, nodes, node));
    sums.emplace_back();
    for (int piece = 0; piece < steps.back().pieces; ++piece) sums.back()[{0, piece}] = {node};
    std::set<int> peers;
    for (auto const& step : steps.back().steps) {
      peers.insert(step.sendTo);
      peers.insert(step.receiveFrom);
    }
    peers.erase(-1);
    auto const& neighbours = steps.back().neighbours;
    if (!std::equal(peers.begin(), peers.end(), neighbours.begin(), neighbours.end())) fault("neighbours");
  }
  std::vector<bool> sent(all.size(), false);  // of the step that a node is at
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t node = 0; node < all.size(); ++node) {
      if (at[node] == steps[node].steps.size()) continue;
      auto const& step = steps[node].steps[at[node]];
      auto const self = static_cast<int>(node);
      if (!sent[node] && step.sendTo >= 0) {
        Message message{{}, step.sendFirst, step.sendSlot, time[node]};
        for (int i = 0; i < step.sendPieces; ++i) {
          message.pieces.push_back(sums[node][{step.sendFrom, step.sendFirst + i}]);
        }
        network[{self, step.sendTo}].push_back(message);
      }
      sent[node] = true;
      if (step.receiveFrom >= 0) {
        auto& waiting = network[{step.receiveFrom, self}];
        if (waiting.empty()) continue;
        auto const message = waiting.front();
        waiting.pop_front();
        auto const pieces = static_cast<int>(message.pieces.size());
        if (message.first != step.receiveFirst || pieces != step.receivePieces || message.slot != step.receiveSlot) {
          fault("a message that is not what its receiver waits for");
        }
        if (message.slot < 0 || message.slot >= nodes) fault("a slot that is not there");
        for (int i = 0; i < pieces; ++i) {
          auto& place = sums[node][{message.slot, message.first + i}];
          auto const& piece = message.pieces[static_cast<std::size_t>(i)];
          // Only a result, which everybody's sums have come to, may arrive where something was.
          if (message.slot == 0 || (!place.empty() && piece != all)) fault("a place that is taken");
          if ((step.addSlot < 0) != (piece == all)) fault("a result that is not whole, or is added to");
          place = piece;
          if (step.addSlot < 0) continue;
          auto const& own = sums[node][{step.addSlot, message.first + i}];
          place.insert(own.begin(), own.end());
        }
        auto const bytes = shard / static_cast<std::uint64_t>(steps[node].pieces) * static_cast<unsigned>(pieces);
        time[node] = std::max(time[node], message.sent + latency + bytes);
      }
      ++at[node];
      sent[node] = false;
      moved = true;
    }
  }
  for (std::size_t node = 0; node < all.size(); ++node) {
    if (at[node] != steps[node].steps.size()) fault("node " + std::to_string(node) + " waits forever");
    for (int piece = 0; piece < steps[node].pieces; ++piece) {
      if (sums[node][{steps[node].resultSlot, piece}] != all)
        fault("node " + std::to_string(node) + " lacks sums, or has some twice");
    }
    outcome.time = std::max(outcome.time, time[node]);
  }
  for (auto const& [pair, left] : network) {
    if (!left.empty()) fault("a message that nobody receives");
  }
  return outcome;
}

std::string refusalOf(NodeSchedule schedule, int nodes, int node) {
  try {
    (void)nodeSteps(schedule, nodes, node);
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::invalidUsage);
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("every node gets every node's sum once, in the time that is reckoned with") {
  for (auto const schedule : tables) {
    for (int nodes = 1; nodes <= 40; nodes += nodes < 20 ? 1 : 7) {
      CAPTURE(nameOf(schedule));
      CAPTURE(nodes);
      auto const count = static_cast<std::uint64_t>(nodes);
      std::uint64_t const shard = count * powerWithin(count);
      for (std::uint64_t const latency : {std::uint64_t{0}, std::uint64_t{1000}}) {
        auto const found = carryOut(schedule, nodes, shard, latency);
        CHECK(found.wrong.empty());
        auto const cost = costOf(schedule, count, shard);
        auto const most = cost.messages * latency + cost.bytes;
        CHECK(found.time <= most);
        // Nodes that others fold into may catch up while these wait anyway.
        bool const folds = schedule != NodeSchedule::ring && count != powerWithin(count);
        CHECK(found.time + (folds ? latency + shard : 0) >= most);
      }
    }
  }
}

TEST_CASE("the fastest schedule by size and number of nodes") {
  auto const chosen = [](std::uint64_t nodes, std::uint64_t shard, bool directOnly = false) {
    return fastestSchedule(nodes, shard, layout::usualMessageBytes, layout::usualTransferBytes, directOnly);
  };
  CHECK(chosen(1, 1 << 20) == NodeSchedule::oneExchange);
  CHECK(chosen(2, 1 << 30) == NodeSchedule::oneExchange);
  CHECK(chosen(8, 1 << 10) == NodeSchedule::oneExchange);
  CHECK(chosen(8, 1 << 24) == NodeSchedule::twoExchanges);
  // 126 further messages take longer than six that follow a first one.
  CHECK(chosen(128, 1 << 10) == NodeSchedule::doubling);
  CHECK(chosen(128, 1 << 20) == NodeSchedule::halving);
  CHECK(chosen(128, 1 << 10, true) == NodeSchedule::oneExchange);
  CHECK(chosen(128, 1 << 20, true) == NodeSchedule::twoExchanges);
  // Of nodes that are no power of two some would wait for others: for large ones, that takes longer than to start 99.
  CHECK(chosen(100, 1 << 28) == NodeSchedule::twoExchanges);
  // What is started takes no longer than what arrives.
  CHECK(fastestSchedule(8, 1 << 20, 0, 1 << 30) == NodeSchedule::twoExchanges);
}

TEST_CASE("nodes and tables that there are not are refused in words") {
  for (auto const schedule : tables) {
    CHECK(refusalOf(schedule, 3, 3) == "steps of node 3 among 3: allowed are 1 node or more, and a node from 0 to 2");
    CHECK_FALSE(refusalOf(schedule, 3, -1).empty());
    CHECK_FALSE(refusalOf(schedule, 0, 0).empty());
  }
  CHECK(refusalOf(NodeSchedule::oneExchange, 3, 0) ==
        "steps of one_exchange: a direct exchange has no table; allowed are ring, doubling and halving");
}
