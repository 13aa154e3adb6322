// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a job over several hosts, with a simulated GPU: every collective from the host against what must come
// out. Started by any launcher; ends with 0 where all was well, else prints what was not and ends with 1.
//
//   mscclpp_test_net_collectives                 in place and apart, of several sizes; prints how other hosts are
//                                                reached
//   mscclpp_test_net_collectives PLAN.json...    those of the plans, which a collection prefers; prints what was
//   chosen,
//                                                and why a plan was not
//   mscclpp_test_net_collectives BYTES DEVICE    each once, whose larger buffer has so many bytes; the first rank of a
//                                                host prints what that network device has sent and received meanwhile
//   mscclpp_test_net_collectives messages        groups of messages between all ranks
//   mscclpp_test_net_collectives forever         the same again and again, until one fails
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/world.hpp"
#include "mscclpp/dsl/plan_algorithm.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/hierarchy.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/host/transport_set.hpp"
#include "support/message_exchange.hpp"

namespace {

using namespace mscclpp;
using T = std::int32_t;

T valueOf(std::size_t rank, std::size_t i) { return static_cast<T>(rank * 1000 + i % 997); }

class Job {
 public:
  Job(Communicator const& communicator, std::size_t count)
      : communicator_(communicator),
        stream_(communicator.device()),
        count_(count),
        ranks_(static_cast<std::size_t>(communicator.size())),
        self_(static_cast<std::size_t>(communicator.rank())) {}

  // How many elements of the result are wrong. With the name of an algorithm it says which one was
  // chosen, and why that one refuses the call.
  std::size_t run(AlgorithmCollection const& algorithms, Collective collective, int root, bool inPlace,
                  std::string const& named = {}) const {
    auto const& traits = traitsOf(collective);
    auto const inCount = count_ * traits.in.partsOf(ranks_), outCount = count_ * traits.out.partsOf(ranks_);
    auto const larger = std::max(inCount, outCount);
    GpuBuffer<T> const in(communicator_.device(), larger), apart(communicator_.device(), outCount);
    std::vector<T> input;
    for (std::size_t i = 0; i < inCount; ++i) input.push_back(valueOf(self_, i));
    auto const inAt = inPlace && inCount < outCount ? self_ * count_ : 0;
    auto const outAt = inPlace && outCount < inCount ? self_ * count_ : 0;
    copyToDevice(in, std::span<T const>(input), inAt);
    auto* const out = inPlace ? in.data() + outAt : apart.data();
    CollectiveCall const call{.in = in.data() + inAt,
                              .out = out,
                              .inBytes = inCount * sizeof(T),
                              .outBytes = outCount * sizeof(T),
                              .type = DataType::int32,
                              .op = reduces(collective) ? ReduceOp::sum : ReduceOp::none,
                              .symmetric = !named.empty(),
                              .root = hasRoot(collective) ? root : 0};
    if (!named.empty()) {
      std::printf("%s by %s %s\n", std::string(nameOf(collective)).c_str(),
                  algorithms.choose(collective, communicator_, call).algorithm.c_str(),
                  algorithms.at(collective, named)->refusal(communicator_, call).c_str());
    }
    algorithms.execute(collective, communicator_, stream_, call);
    communicator_.synchronize(stream_);
    if (!traits.out.isUsed(communicator_.rank() == root)) return 0;
    std::vector<T> found(outCount);
    copyToHost(communicator_.device(), std::span(found), out);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < outCount; ++i) wrong += found[i] == expected(collective, root, i) ? 0 : 1;
    return wrong;
  }

 private:
  T expected(Collective collective, int root, std::size_t i) const {
    auto const at = [&] {
      switch (collective) {
        case Collective::allReduce:
        case Collective::reduce:
        case Collective::broadcast:
          return i;
        case Collective::allGather:
        case Collective::gather:
        case Collective::sendRecv:
          return i % count_;
        default:
          return self_ * count_ + i % count_;
      }
    }();
    if (reduces(collective)) {
      T sum = 0;
      for (std::size_t rank = 0; rank < ranks_; ++rank) sum += valueOf(rank, at);
      return sum;
    }
    switch (collective) {
      case Collective::broadcast:
      case Collective::scatter:
        return valueOf(static_cast<std::size_t>(root), at);
      case Collective::sendRecv:
        return valueOf((self_ + ranks_ - 1) % ranks_, at);
      default:
        return valueOf(i / count_, at);
    }
  }

  Communicator const& communicator_;
  Stream stream_;
  std::size_t count_, ranks_, self_;
};

bool movesData(Collective collective) { return collective != Collective::barrier; }

struct Outcome {
  std::size_t calls = 0, wrong = 0;

  void add(Collective collective, std::size_t count, std::size_t wrongHere) {
    ++calls;
    wrong += wrongHere;
    if (wrongHere != 0) std::printf("%zu wrong: %s, %zu\n", wrongHere, std::string(nameOf(collective)).c_str(), count);
  }
};

// How ranks of other hosts are reached; one way leads to all of them.
Transport wayToOtherHosts(Communicator const& communicator) {
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (!communicator.reaches(peer)) return communicator.transportTo(peer);
  }
  throw Error(ErrorCode::invalidUsage, "all ranks are on one host; start some elsewhere");
}

Outcome runAll(Communicator const& communicator, AlgorithmCollection const& algorithms) {
  Outcome outcome;
  auto const way = wayToOtherHosts(communicator);
  auto const messageBytes = HierarchicalTeam(communicator, {.blocks = 1, .bytes = 256}).deviceHandle().messageBytes;
  if (messageBytes != (way == Transport::tcp ? layout::tcpMessageBytes : layout::usualMessageBytes)) {
    throw Error(ErrorCode::internalError,
                "a message over " + std::string(nameOf(way)) + " counts as " + std::to_string(messageBytes) + " bytes");
  }
  std::printf("rank %d reaches other hosts by %s\n", communicator.rank(), std::string(nameOf(way)).c_str());
  for (std::size_t const count : {1, 1001, 20000}) {
    Job const job(communicator, count);
    for (auto const collective : collectives) {
      if (!movesData(collective)) continue;
      for (bool const inPlace : {false, true}) {
        int const root = static_cast<int>(outcome.calls + 1) % communicator.size();
        outcome.add(collective, count, job.run(algorithms, collective, root, inPlace));
      }
    }
  }
  return outcome;
}

Outcome runPlans(Communicator const& communicator, std::span<char* const> files) {
  auto algorithms = AlgorithmCollection::defaults();
  std::vector<dsl::ExecutionPlan> plans;
  for (char const* file : files) {
    plans.push_back(dsl::ExecutionPlan::load(file));
    algorithms.prefer(dsl::planAlgorithm(plans.back()));
  }
  Outcome outcome;
  for (std::size_t const count : {1, 1001, 20000}) {
    Job const job(communicator, count);
    for (auto const& plan : plans) {
      auto const& program = plan.program();
      auto const collective = *dsl::collectiveOf(program);
      outcome.add(collective, count, job.run(algorithms, collective, 0, program.inPlace, program.name.str()));
    }
  }
  return outcome;
}

// Of a network device, headers included.
struct Traffic {
  std::uint64_t sent, received;

  static Traffic of(std::string const& device) { return {read(device, "tx_bytes"), read(device, "rx_bytes")}; }

 private:
  static std::uint64_t read(std::string const& device, char const* which) {
    std::ifstream file("/sys/class/net/" + device + "/statistics/" + which);
    std::uint64_t value = 0;
    if (!(file >> value)) throw Error(ErrorCode::systemError, "no statistics of " + device);
    return value;
  }
};

Outcome countTraffic(Communicator const& communicator, AlgorithmCollection const& algorithms, std::size_t bytes,
                     std::string const& device) {
  auto const& bootstrap = communicator.bootstrap();
  auto const ranks = static_cast<std::size_t>(communicator.size());
  // Nobody is at work when it looks.
  auto const look = [&] {
    bootstrap->barrier();
    auto const traffic = Traffic::of(device);
    bootstrap->barrier();
    return traffic;
  };
  Outcome outcome;
  for (auto const collective : collectives) {
    if (!movesData(collective)) continue;
    auto const& traits = traitsOf(collective);
    auto const count = bytes / sizeof(T) / std::max(traits.in.partsOf(ranks), traits.out.partsOf(ranks));
    int const root = communicator.size() - 1;
    // The first call of all makes the connections.
    if (outcome.calls == 0) outcome.add(collective, 1, Job(communicator, 1).run(algorithms, collective, root, false));
    Job const job(communicator, count);
    auto const before = look();
    outcome.add(collective, count, job.run(algorithms, collective, root, false));
    auto const after = look();
    if (launchFromEnvironment().localRank != 0) continue;
    std::printf("%s sent %llu received %llu\n", std::string(nameOf(collective)).c_str(),
                static_cast<unsigned long long>(after.sent - before.sent),
                static_cast<unsigned long long>(after.received - before.received));
  }
  return outcome;
}

// Through rings that the larger ones go round, and whatever the library makes where nothing else is asked.
Outcome exchangeMessages(Communicator const& communicator, bool forever) {
  Stream const stream(communicator.device());
  Outcome outcome;
  layout::PointToPointRequirement const small{
      .lanes = 4, .stageBytes = 4096, .packetBytes = 1920, .packetLimit = 8192, .farBytes = 4096};
  for (auto const& requirement : {small, layout::PointToPointRequirement{}}) {
    PointToPoint const links(communicator, requirement);
    if (forever) std::printf("begins\n"), std::fflush(stdout);
    do {
      for (std::size_t const largest : {1, 5000, requirement == small ? 60000 : 700000}) {
        mscclpp_test::MessageExchange const messages(links, {largest, 0, largest / 3, 1, largest / 2 + 1});
        MessageGroup group(links, stream);
        messages.addTo(group);
        group.start();
        communicator.synchronize(stream);
        outcome.add(Collective::sendRecv, largest, messages.wrong());
      }
    } while (forever);
    communicator.bootstrap()->barrier();
  }
  return outcome;
}

Outcome run(Communicator const& communicator, std::span<char* const> arguments) {
  auto const algorithms = AlgorithmCollection::defaults();
  if (!arguments.empty() && std::string_view(arguments[0]).ends_with(".json")) return runPlans(communicator, arguments);
  if (arguments.size() == 2) return countTraffic(communicator, algorithms, std::stoul(arguments[0]), arguments[1]);
  if (arguments.size() == 1) return exchangeMessages(communicator, std::string_view(arguments[0]) == "forever");
  return runAll(communicator, algorithms);
}

}  // namespace

int main(int count, char** values) {
  try {
    Communicator const communicator(bootstrapFromEnvironment(),
                                    Device{DeviceKind::sim, launchFromEnvironment().localRank});
    auto const outcome = run(communicator, std::span(values, static_cast<std::size_t>(count)).subspan(1));
    std::printf("rank %d of %d nodes: %zu calls, %zu wrong\n", communicator.rank(), World::of(communicator).nodes,
                outcome.calls, outcome.wrong);
    communicator.bootstrap()->barrier();
    return outcome.wrong == 0 ? 0 : 1;
  } catch (Error const& error) {
    std::fprintf(stderr, "%s: %s\n", std::string(nameOf(error.code())).c_str(), error.what());
    return 1;
  }
}
