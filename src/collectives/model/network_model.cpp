// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A network's figures, and the time of one call in two levels. docs/cost_model.md has the formulas.
#include "mscclpp/collectives/network_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/json_place.hpp"
#include "collectives/model/user_models.hpp"
#include "mscclpp/algorithms/core/node_schedule.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

using namespace collectives_impl;

namespace {

struct NetworkParameter {
  std::string_view name;
  double NetworkModel::*member;
  double unit;
};
constexpr std::array networkParameters{
    NetworkParameter{"message_us", &NetworkModel::messageTime, microsecond},
    NetworkParameter{"transfer_us", &NetworkModel::transferTime, microsecond},
    NetworkParameter{"rail_gbps", &NetworkModel::railRate, gigabyte},
};

// No more than choices can reckon with, which is more than any buffer.
std::uint64_t bytesIn(double seconds, double rate) {
  return static_cast<std::uint64_t>(std::llround(std::min(seconds * rate, 0x1p40)));
}

class Levels {
 public:
  Levels(MachineModel const& machine, NetworkModel const& network, TwoLevelQuery const& query)
      : machine_(machine),
        network_(network),
        query_(query),
        nodes_(query.nodes),
        rails_(query.rails),
        whole_(static_cast<double>(query.bytes)) {}

  std::optional<TwoLevelTime> time() const {
    // The launch, the barriers at begin and end, and what follows.
    auto const around = machine_.kernelTime + machine_.launchGap + 2 * machine_.barrierTime;
    auto const part = whole_ / (nodes_ * rails_);
    auto const barrier = nodes_ > 1 ? machine_.barrierTime : 0;  // of the blocks, around what the first of them does
    switch (query_.collective) {
      case Collective::allGather: {
        // The own part goes to the node and to the network at the same time, what comes from there to the node.
        auto const own = stored(part * (rails_ - 1), part);
        auto const network = exchanged(part) + (nodes_ > 1 ? network_.messageTime : 0);
        auto const spread = stored(part * (nodes_ - 1) * (rails_ - 1), 0);
        return TwoLevelTime{around + std::max(own, network) + barrier + spread, std::max(0.0, network - own)};
      }
      case Collective::allReduce: {
        auto const shard = whole_ / rails_;
        auto const reduced = loaded(shard * (rails_ - 1), shard);
        auto const toPeers = shard * (rails_ - 1);
        std::optional<TwoLevelTime> fastest;
        for (auto const schedule : nodeSchedules) {
          if (query_.schedule.value_or(schedule) != schedule) continue;
          auto const cost = costOf(schedule, static_cast<std::uint64_t>(nodes_), static_cast<std::uint64_t>(shard));
          auto const network = static_cast<double>(cost.messages) * network_.messageTime +
                               static_cast<double>(cost.transfers) * network_.transferTime +
                               static_cast<double>(cost.bytes) / network_.railRate;
          auto const steps = static_cast<double>(cost.barriers) * barrier + network;
          auto const seconds = around + reduced + steps + stored(toPeers, shard + static_cast<double>(cost.local));
          if (!fastest || seconds < fastest->seconds) fastest = TwoLevelTime{seconds, network, schedule};
        }
        return fastest;
      }
      case Collective::reduceScatter: {
        auto const shard = whole_ / rails_;
        auto const network = exchanged(part);
        return TwoLevelTime{
            around + loaded(shard * (rails_ - 1), shard) + 2 * barrier + network + stored(0, shard + part), network};
      }
      case Collective::allToAll: {
        auto const network = exchanged(part * rails_);
        auto const handedOut = stored(part * nodes_ * (rails_ - 1), part * nodes_);
        return TwoLevelTime{around + handedOut + 3 * machine_.barrierTime + network + stored(0, whole_), network};
      }
      default:
        return std::nullopt;
    }
  }

 private:
  // To each other node, and as much from each.
  double exchanged(double bytes) const {
    if (nodes_ == 1) return 0;
    auto const others = nodes_ - 1;
    return network_.messageTime + (others - 1) * network_.transferTime + others * bytes / network_.railRate;
  }

  double multiprocessors(double bytes) const {
    return bytes / (std::min<double>(query_.blocks, machine_.multiprocessors) * machine_.blockRate);
  }
  // Bytes that go to peers of the node, and that stay at home.
  double stored(double peers, double local) const {
    auto const rate = machine_.storeRate * query_.blocks / (query_.blocks + machine_.storeRamp);
    return std::max({peers / rate, multiprocessors(peers + local), 2 * (peers + local) / machine_.memoryRate});
  }
  double loaded(double peers, double local) const {
    return std::max(
        {peers / machine_.loadRate, multiprocessors(peers + local), 2 * (peers + local) / machine_.memoryRate});
  }

  MachineModel const& machine_;
  NetworkModel const& network_;
  TwoLevelQuery const& query_;
  double nodes_;
  double rails_;
  double whole_;
};

}  // namespace

std::uint64_t NetworkModel::messageBytes() const { return bytesIn(messageTime, railRate); }
std::uint64_t NetworkModel::transferBytes() const { return bytesIn(transferTime, railRate); }

NetworkModel const* NetworkModel::of(Transport transport) {
  auto const& given = UserModels::read().networks;
  auto const found = std::ranges::find(given, nameOf(transport), &NetworkModel::transport);
  return found == given.end() ? nullptr : &*found;
}

NetworkModel NetworkModel::parse(std::string_view json, std::string const& source) {
  JsonFile const file(json, modelTitle(source), howToMeasure);
  JsonPlace const root(file);
  (void)root.at("version").whole(1, 1);
  NetworkModel result;
  auto const network = root.at("network");
  result.transport = network.name();
  if (std::ranges::none_of(allTransports, [&](Transport each) { return nameOf(each) == result.transport; })) {
    network.refuse("memory, ib or tcp");
  }
  auto const values = root.at("parameters");
  std::vector<std::string_view> names;
  for (auto const& [name, member, unit] : networkParameters) {
    names.push_back(name);
    auto const value = values.at(name);
    // A rate divides.
    result.*member = (unit == gigabyte ? value.above(0, largestFigure) : value.real(0, largestFigure)) * unit;
  }
  values.requireKnown(names, "parameter");
  return result;
}

NetworkModel NetworkModel::load(std::string const& path) { return parse(readFile(path, modelTitle(path)), path); }

std::string NetworkModel::json() const {
  JsonFile::Json values;
  for (auto const& [name, member, unit] : networkParameters) {
    values[std::string(name)] = writtenFigure(this->*member / unit);
  }
  return JsonFile::Json{{"version", 1}, {"network", transport}, {"parameters", std::move(values)}}.dump(1) + "\n";
}

void NetworkModel::save(std::string const& path) const { saveModel(path, json()); }

std::optional<TwoLevelTime> predictTwoLevel(MachineModel const& machine, NetworkModel const& network,
                                            TwoLevelQuery const& query) {
  auto const refuse = [&](std::string_view what, auto value, std::string_view allowed) {
    fail(ErrorCode::invalidUsage, "model of {} in two levels: {} is {}; allowed is {}", nameOf(query.collective), what,
         value, allowed);
  };
  if (query.nodes < 1) refuse("the number of nodes", query.nodes, "1 or more");
  if (query.rails < 1) refuse("the number of ranks of a node", query.rails, "1 or more");
  if (query.blocks < 1) refuse("the number of blocks", query.blocks, "1 or more");
  if (query.threads < 1 || query.threads > 1024) refuse("the number of threads", query.threads, "1 to 1024");
  // Also where they are no numbers.
  if (!(network.messageTime >= 0)) refuse("messageTime", network.messageTime, "0 or more");
  if (!(network.transferTime >= 0)) refuse("transferTime", network.transferTime, "0 or more");
  if (!(network.railRate > 0)) refuse("railRate", network.railRate, "more than 0");
  return Levels(machine, network, query).time();
}

}  // namespace mscclpp
