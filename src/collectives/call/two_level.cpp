// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/call/two_level.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/format.hpp"
#include "collectives/call/call_check.hpp"
#include "collectives/call/context_cache.hpp"
#include "collectives/kernels/on_machine.hpp"
#include "collectives/kernels/two_level_kernels.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/collectives/network_model.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/hierarchy.hpp"

namespace mscclpp::collectives_impl {
namespace {

// A simulated GPU has its threads for a cost.
LaunchShape shapeFor(Device device, std::uint32_t maxBlocks) {
  return device.kind == DeviceKind::sim ? LaunchShape{.blocks = 2, .threads = 64}
                                        : LaunchShape{.blocks = std::min(maxBlocks, 32u), .threads = 512};
}

// Of a round. Large ones hide the network's latency; each rank has three to four times as much memory for them.
std::size_t roundBytes(Device device) {
  constexpr char const* variable = "MSCCLPP_ROUND_BYTES";
  auto const set = processVariable(variable).value_or("");
  if (!set.empty()) return static_cast<std::size_t>(parseInteger(variable, set, 4 << 10, 1 << 30));
  return device.kind == DeviceKind::sim ? 16 << 10 : 4 << 20;
}

struct NodesOfStream {
  NodesOfStream(Communicator const& communicator, LaunchShape const& launch, NetworkBytes const& network)
      : team(communicator, {.blocks = launch.blocks,
                            .bytes = roundBytes(communicator.device()),
                            .allToAll = true,
                            .messageBytes = network.message,
                            .transferBytes = network.transfer,
                            .schedule = nodeSchedule()}),
        shape(launch) {}

  HierarchicalTeam team;
  LaunchShape shape;
};

// A stream's calls come one behind the other, so that all collectives have one team there, and one proxy: for as long
// as a context of one of them does, and no failure has come in between: graphs keep contexts beyond that.
class NodesOfStreams {
 public:
  explicit NodesOfStreams(Communicator const& communicator) : communicator_(communicator) {}

  // Collective where there is none.
  std::shared_ptr<NodesOfStream const> of(Stream const& stream) {
    auto const renewals = ContextCache::of(communicator_).renewals();
    auto& kept = streams_[stream.id()];
    auto found = kept.renewals == renewals ? kept.nodes.lock() : nullptr;
    if (found == nullptr) {
      auto const shape = shapeFor(communicator_.device(), World::of(communicator_).maxBlocks);
      found = std::make_shared<NodesOfStream>(communicator_, shape, networkBytes(communicator_));
      kept = {found, renewals};
    }
    return found;
  }

 private:
  struct Kept {
    std::weak_ptr<NodesOfStream const> nodes{};
    std::uint64_t renewals = 0;
  };

  Communicator const& communicator_;
  std::map<std::uint64_t, Kept> streams_;
};

// Of a collective in a stream; `nodes` comes with its first call.
struct TwoLevelContext {
  Communicator const& communicator;
  std::shared_ptr<NodesOfStream const> nodes{};
};

std::string refusalOf(Collective collective, World const& world, CollectiveCall const& call) {
  if (world.nodes == 1) return "it is for ranks on several nodes, and all of these map each other's memory";
  if (call.blocks != 0 || call.threads != 0) return "its launches have a shape of their own; give 0 blocks and threads";
  if (call.rankOrder && reduces(collective) && world.nodes != world.ranks) {
    return "it rounds each node's sums; `rankOrder` of the call asks for the bits of rank order";
  }
  if (!call.extras.empty()) {
    return fmt::format("it takes no extra arguments, but got \"{}\"", call.extras.begin()->first);
  }
  return {};
}

std::shared_ptr<Algorithm> twoLevel(Collective collective) {
  NativeFunctions functions;
  functions.makeContext = [](Communicator const& communicator, CollectiveCall const&) -> std::shared_ptr<void> {
    return std::make_shared<TwoLevelContext>(TwoLevelContext{communicator});
  };
  functions.run = [collective](std::shared_ptr<void> const& held, CollectiveCall const& call, Stream const& stream) {
    auto& context = *static_cast<TwoLevelContext*>(held.get());
    if (context.nodes == nullptr) context.nodes = context.communicator.attached<NodesOfStreams>().of(stream);
    auto const& team = context.nodes->team;
    int const ranks = team.nodes() * team.rails();
    auto const bytes = partBytesOf(collective, ranks, call);
    TwoLevelCall const told{.collective = collective,
                            .op = call.op,
                            .root = call.root,
                            .in = call.in,
                            .out = call.out,
                            .part = reduces(collective) ? bytes / bytesOf(call.type) : bytes,
                            .direct = call.rankOrder || call.op == ReduceOp::avg};
    onMachine(stream.device().kind, "two_level", [&](auto machine) {
      startTwoLevel({stream, context.nodes->shape, team.deviceHandle(), call.type}, told, machine);
    });
  };
  functions.refusal = [collective](World const& world, CollectiveCall const& call) {
    return refusalOf(collective, world, call);
  };
  return std::make_shared<NativeAlgorithm>("two_level", collective, std::move(functions));
}

}  // namespace

NetworkBytes networkBytes(Communicator const& communicator) {
  NetworkBytes bytes;
  auto const take = [](std::optional<std::uint64_t>& least, std::uint64_t value) {
    least = std::min(least.value_or(value), value);
  };
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (communicator.reaches(peer)) continue;
    auto const* const network = NetworkModel::of(communicator.transportTo(peer));
    if (network == nullptr) continue;
    take(bytes.message, network->messageBytes());
    take(bytes.transfer, network->transferBytes());
  }
  constexpr char const* variable = "MSCCLPP_MESSAGE_BYTES";
  auto const set = processVariable(variable).value_or("");
  if (!set.empty()) bytes.message = static_cast<std::uint64_t>(parseInteger(variable, set, 0, 1 << 30));
  return bytes;
}

std::optional<NodeSchedule> nodeSchedule() {
  constexpr char const* variable = "MSCCLPP_NODE_SCHEDULE";
  auto const set = processVariable(variable).value_or("");
  if (set.empty()) return {};
  auto const found = std::ranges::find(nodeSchedules, set, [](NodeSchedule each) { return nameOf(each); });
  if (found != nodeSchedules.end()) return *found;
  std::vector<std::string_view> names;
  names.reserve(nodeSchedules.size());
  for (auto const each : nodeSchedules) names.push_back(nameOf(each));
  fail(ErrorCode::invalidUsage, "{} is \"{}\"; allowed are {}, and nothing: by size", variable, set,
       fmt::join(names, ", "));
}

std::vector<std::shared_ptr<Algorithm>> twoLevelAlgorithms() {
  std::vector<std::shared_ptr<Algorithm>> all(std::size(collectives));
  std::ranges::transform(collectives, all.begin(), twoLevel);
  return all;
}

}  // namespace mscclpp::collectives_impl
