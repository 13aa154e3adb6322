// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a job over several hosts, with a simulated GPU: every collective from the host against what must come
// out. Started by any launcher; ends with 0 where all was well, else prints what was not and ends with 1.
//
//   mscclpp_test_net_collectives [small]         in place and apart, of several counts, or of the small ones alone;
//                                                prints how other hosts are reached
//   mscclpp_test_net_collectives types[=I/N[,COUNT]]
//                                                in place and apart, by every operation and type, or part I of N of the
//                                                types, of COUNT elements a part, 5003 by default; prints what was
//                                                called
//   mscclpp_test_net_collectives PLAN.json...    those of the plans, which a collection prefers; prints what was
//                                                chosen, and why a plan was not
//   mscclpp_test_net_collectives BYTES DEVICE    each once, whose larger buffer has so many bytes; the first rank of a
//                                                host prints what that network device has sent and received meanwhile
//   mscclpp_test_net_collectives messages        groups of messages between all ranks
//   mscclpp_test_net_collectives graphs          collectives and messages captured into graphs, replayed with other
//                                                data beside the same calls outside of graphs
//   mscclpp_test_net_collectives forever         the same again and again, until one fails
//   mscclpp_test_net_collectives outlive CALLS   as many all-reduces; when one fails, says when and why, and goes on
//                                                with the ranks that are left
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
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
#include "mscclpp/sim/graph.hpp"
#include "net/contributions.hpp"
#include "support/message_exchange.hpp"

namespace {

using namespace mscclpp;

// What is called: the collective, what it does and where. Elements are of a type T.
struct What {
  Collective collective;
  ReduceOp op = ReduceOp::sum;  // if any
  int root = 0;                 // if any
  bool inPlace = false;
  std::string_view algorithm{};  // says which one was chosen, and why this one refuses the call
};

// This rank's buffers for a call, `count` elements a part.
template <class T>
class Buffers {
 public:
  Buffers(Communicator const& communicator, std::size_t count, What const& what)
      : what_(what),
        traits_(traitsOf(what.collective)),
        count_(count),
        ranks_(static_cast<std::size_t>(communicator.size())),
        self_(static_cast<std::size_t>(communicator.rank())),
        memory_(communicator.device(), first_ + margin + (what.inPlace ? 0 : inCount_)) {
    renew(0);
  }

  // The input of that turn, and an output that nothing has been written to.
  void renew(std::size_t turn) {
    turn_ = turn;
    memory_.fill(untouched);
    std::vector<T> input(inCount_);
    for (std::size_t i = 0; i < inCount_; ++i) input[i] = data().of(self_, i);
    copyToDevice(memory_, std::span<T const>(input), inAt_);
  }

  CollectiveCall call() const {
    return {.in = memory_.data() + inAt_,
            .out = memory_.data() + outAt_,
            .inBytes = inCount_ * sizeof(T),
            .outBytes = outCount_ * sizeof(T),
            .type = dataTypeOf<T>(),
            .op = traits_.reduces ? what_.op : ReduceOp::none,
            .symmetric = !what_.algorithm.empty(),
            .root = traits_.hasRoot() ? what_.root : 0};
  }

  // How many elements are wrong, of the result and around it.
  std::size_t wrong() const {
    auto const found = copyToHost(memory_);
    std::size_t wrong = 0;
    if (traits_.out.isUsed(self_ == root())) {
      for (std::size_t i = 0; i < outCount_; ++i) wrong += same(found[outAt_ + i], data().expected(self_, i)) ? 0 : 1;
    }
    T guard;
    std::memset(&guard, untouched, sizeof guard);
    for (std::size_t i = 0; i < margin; ++i) wrong += same(found[i], guard) && same(found[first_ + i], guard) ? 0 : 1;
    return wrong;
  }

 private:
  static constexpr int untouched = 0x5a;
  static constexpr std::size_t margin = 8;

  static bool same(T const& a, T const& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
  std::size_t root() const { return static_cast<std::size_t>(what_.root); }
  mscclpp_test::Contributions<T> data() const { return {what_.collective, what_.op, ranks_, count_, root(), turn_}; }

  What what_;
  CollectiveTraits const& traits_;
  std::size_t count_, ranks_, self_;
  std::size_t inCount_ = count_ * traits_.in.partsOf(ranks_), outCount_ = count_ * traits_.out.partsOf(ranks_);
  // The output, or what has both; behind it the input that is apart. Elements that nobody may touch are around.
  std::size_t first_ = margin + (what_.inPlace ? std::max(inCount_, outCount_) : outCount_);
  std::size_t inAt_ = !what_.inPlace ? first_ + margin : inCount_ < outCount_ ? margin + self_ * count_ : margin;
  std::size_t outAt_ = what_.inPlace && outCount_ < inCount_ ? margin + self_ * count_ : margin;
  std::size_t turn_ = 0;
  GpuBuffer<T> memory_;
};

class Job {
 public:
  Job(Communicator const& communicator, std::size_t count)
      : communicator_(communicator), stream_(communicator.device()), count_(count) {}

  // How many elements are wrong.
  template <class T>
  std::size_t run(AlgorithmCollection const& algorithms, What const& what) const {
    auto const collective = what.collective;
    Buffers<T> const buffers(communicator_, count_, what);
    auto const call = buffers.call();
    if (!what.algorithm.empty()) {
      std::printf("%s by %s %s\n", std::string(nameOf(collective)).c_str(),
                  algorithms.choose(collective, communicator_, call).algorithm.c_str(),
                  algorithms.at(collective, std::string(what.algorithm))->refusal(communicator_, call).c_str());
    }
    algorithms.execute(collective, communicator_, stream_, call);
    communicator_.synchronize(stream_);
    return buffers.wrong();
  }

 private:
  Communicator const& communicator_;
  Stream stream_;
  std::size_t count_;
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

// How ranks of other hosts are reached whose memory is not mapped; one way leads to all of them.
std::optional<Transport> wayToOtherHosts(Communicator const& communicator) {
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (!communicator.reaches(peer)) return communicator.transportTo(peer);
  }
  if (communicator.bootstrap()->getNranksPerNode() < communicator.size()) return std::nullopt;
  throw Error(ErrorCode::invalidUsage, "all ranks are on one host; start some elsewhere");
}

// What a message over the network counts as.
void checkNetwork(Communicator const& communicator, Transport way) {
  auto const messageBytes = HierarchicalTeam(communicator, {.blocks = 1, .bytes = 256}).deviceHandle().messageBytes;
  if (messageBytes != (way == Transport::tcp ? layout::tcpMessageBytes : layout::usualMessageBytes)) {
    throw Error(ErrorCode::internalError,
                "a message over " + std::string(nameOf(way)) + " counts as " + std::to_string(messageBytes) + " bytes");
  }
}

Outcome runAll(Communicator const& communicator, AlgorithmCollection const& algorithms, bool small) {
  Outcome outcome;
  if (auto const way = wayToOtherHosts(communicator)) {
    checkNetwork(communicator, *way);
    std::printf("rank %d reaches other hosts by %s\n", communicator.rank(), std::string(nameOf(*way)).c_str());
  } else {
    std::printf("rank %d reaches all ranks' memory\n", communicator.rank());
  }
  for (std::size_t const count : {1, 1001, 20001}) {
    if (small && count > 1001) continue;
    Job const job(communicator, count);
    for (auto const collective : collectives) {
      if (!movesData(collective)) continue;
      for (bool const inPlace : {false, true}) {
        // Within a domain by messages, which need an output of their own.
        if (inPlace && collective == Collective::sendRecv && World::of(communicator).nodes == 1) continue;
        int const root = static_cast<int>(outcome.calls + 1) % communicator.size();
        outcome.add(collective, count,
                    job.run<std::int32_t>(algorithms, {.collective = collective, .root = root, .inPlace = inPlace}));
      }
    }
  }
  return outcome;
}

// By every operation and each `step`th type from `first` on, of which that one has smaller counts, too; says of each
// how many calls were made.
Outcome runTypes(Communicator const& communicator, AlgorithmCollection const& algorithms, std::size_t first,
                 std::size_t step, std::size_t count) {
  // The first one is fewer than there are ranks.
  std::array const counts{std::size_t{1}, std::size_t{37}, count};
  std::vector<Job> jobs;
  for (auto const each : counts) jobs.emplace_back(communicator, each);
  Outcome outcome;
  auto const run = [&](Collective collective, ReduceOp op, std::size_t at) {
    auto const before = outcome.calls;
    for (std::size_t i = at == first ? 0 : counts.size() - 1; i < counts.size(); ++i) {
      for (bool const inPlace : {false, true}) {
        int const root = static_cast<int>(outcome.calls + 1) % communicator.size();
        What const what{.collective = collective, .op = op, .root = root, .inPlace = inPlace};
        outcome.add(collective, counts[i], withDataType(dataTypes[at], [&]<class T>(std::type_identity<T>) {
                      return jobs[i].run<T>(algorithms, what);
                    }));
      }
    }
    std::printf("%s %s of %s: %zu calls\n", std::string(nameOf(collective)).c_str(),
                std::string(reduces(collective) ? nameOf(op) : "move").c_str(),
                std::string(nameOf(dataTypes[at])).c_str(), outcome.calls - before);
  };
  for (auto const collective : collectives) {
    if (!movesData(collective)) continue;
    for (auto at = first; at < dataTypes.size(); at += step) {
      for (auto const op : reduceOps) {
        if (reduces(collective) || op == reduceOps[0]) run(collective, op, at);
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
      auto const name = program.name.str();
      outcome.add(
          collective, count,
          job.run<std::int32_t>(
              algorithms, {.collective = collective, .inPlace = program.inPlace, .algorithm = std::string_view(name)}));
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
  using T = std::int32_t;
  Outcome outcome;
  for (auto const collective : collectives) {
    if (!movesData(collective)) continue;
    auto const& traits = traitsOf(collective);
    auto const count = bytes / sizeof(T) / std::max(traits.in.partsOf(ranks), traits.out.partsOf(ranks));
    What const what{.collective = collective, .root = communicator.size() - 1};
    // The first call of all makes the connections.
    if (outcome.calls == 0) outcome.add(collective, 1, Job(communicator, 1).run<T>(algorithms, what));
    Job const job(communicator, count);
    auto const before = look();
    outcome.add(collective, count, job.run<T>(algorithms, what));
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

// Every collective and a group of messages in one graph; the first is captured before anything has been called. Every
// third turn makes the same calls outside of it, and each replay goes with another call in the same stream.
Outcome replayGraphs(Communicator const& communicator, AlgorithmCollection const& algorithms) {
  using T = std::int32_t;
  Stream const stream(communicator.device());
  Outcome outcome;
  // Small ones first, then in several rounds and chunks.
  for (std::size_t const count : {37, 20001}) {
    std::vector<Collective> which;
    std::vector<Buffers<T>> buffers;
    for (auto const collective : collectives) {
      if (!movesData(collective)) continue;
      which.push_back(collective);
      int const root = static_cast<int>(which.size()) % communicator.size();
      buffers.emplace_back(communicator, count,
                           What{.collective = collective, .root = root, .inPlace = which.size() % 2 == 0});
    }
    PointToPoint const links(communicator, {.lanes = 4, .farBytes = 4096});
    mscclpp_test::MessageExchange messages(links, {count, 0, count / 3, 1, count / 2 + 1}, 1);
    auto const callAll = [&] {
      for (std::size_t i = 0; i < which.size(); ++i) {
        algorithms.execute(which[i], communicator, stream, buffers[i].call());
      }
      MessageGroup group(links, stream);
      messages.addTo(group);
      group.start();
      algorithms.execute(Collective::barrier, communicator, stream, {});
    };
    sim::Graph const graph(stream, callAll);
    What const beside{.collective = Collective::allReduce, .inPlace = true};
    Buffers<T> other(communicator, 1001, beside);
    for (std::size_t turn = 1; turn <= 9; ++turn) {
      for (auto& each : buffers) each.renew(turn);
      messages.renew(turn);
      other.renew(turn);
      if (turn % 3 == 0) {
        callAll();
      } else {
        graph.launch(stream);
      }
      algorithms.execute(beside.collective, communicator, stream, other.call());
      communicator.synchronize(stream);
      for (std::size_t i = 0; i < which.size(); ++i) outcome.add(which[i], count, buffers[i].wrong());
      outcome.add(Collective::sendRecv, count, messages.wrong());
      outcome.add(beside.collective, 1001, other.wrong());
    }
    communicator.bootstrap()->barrier();
  }
  return outcome;
}

Outcome reduceAgain(Communicator const& communicator, AlgorithmCollection const& algorithms, std::size_t calls) {
  Job const job(communicator, 1001);
  Outcome outcome;
  while (outcome.calls < calls) {
    outcome.add(Collective::allReduce, 1001,
                job.run<std::int32_t>(algorithms, {.collective = Collective::allReduce, .inPlace = true}));
  }
  communicator.bootstrap()->barrier();
  return outcome;
}

// Throws what the ranks that are left do not outlive, either.
int outlive(Communicator const& communicator, std::size_t calls) {
  auto const algorithms = AlgorithmCollection::defaults();
  auto const say = [](Communicator const& who, Outcome const& outcome) {
    std::printf("rank %d of %d: %zu calls, %zu wrong\n", who.rank(), who.size(), outcome.calls, outcome.wrong);
    return outcome.wrong == 0 ? 0 : 1;
  };
  (void)reduceAgain(communicator, algorithms, 3);  // makes what it needs
  std::printf("begins\n"), std::fflush(stdout);
  try {
    return say(communicator, reduceAgain(communicator, algorithms, calls));
  } catch (Error const& error) {
    std::chrono::duration<double> const now = std::chrono::system_clock::now().time_since_epoch();
    std::printf("failed at %.3f: %s: %s\n", now.count(), std::string(nameOf(error.code())).c_str(), error.what());
  }
  auto const left = communicator.shrink(communicator.survivors());
  return say(*left, reduceAgain(*left, AlgorithmCollection::defaults(), 20));
}

Outcome run(Communicator const& communicator, std::span<char* const> arguments) {
  auto const algorithms = AlgorithmCollection::defaults();
  std::string const first = arguments.empty() ? "" : arguments[0];
  if (first.starts_with("types")) {
    std::size_t part = 1, parts = 1, count = 5003;
    if (first != "types" && (std::sscanf(first.c_str(), "types=%zu/%zu,%zu", &part, &parts, &count) < 2 || part < 1 ||
                             part > parts || count == 0)) {
      throw Error(ErrorCode::invalidUsage, first + " is no part of the types; say types=1/2, or types for all");
    }
    return runTypes(communicator, algorithms, part - 1, parts, count);
  }
  if (first.ends_with(".json")) return runPlans(communicator, arguments);
  if (arguments.empty() || first == "small") return runAll(communicator, algorithms, first == "small");
  if (arguments.size() == 2) return countTraffic(communicator, algorithms, std::stoul(arguments[0]), arguments[1]);
  if (first == "graphs") return replayGraphs(communicator, algorithms);
  return exchangeMessages(communicator, first == "forever");
}

}  // namespace

int main(int count, char** values) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // in a file, too, a crash leaves what was said before it
  try {
    Communicator const communicator(bootstrapFromEnvironment(),
                                    Device{DeviceKind::sim, launchFromEnvironment().localRank});
    if (count == 3 && std::string_view(values[1]) == "outlive") return outlive(communicator, std::stoul(values[2]));
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
