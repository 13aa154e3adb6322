// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a job over several hosts, with a simulated GPU: every collective from the host against what must come
// out. Started by any launcher; ends with 0 where all was well, else prints what was not and ends with 1.
//
//   mscclpp_test_net_collectives                 in place and apart, of several sizes
//   mscclpp_test_net_collectives BYTES DEVICE    each once, whose larger buffer has so many bytes; the first rank of a
//                                                host prints what that network device has sent and received meanwhile
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/world.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/stream.hpp"

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

  // How many elements of the result are wrong.
  std::size_t run(AlgorithmCollection const& algorithms, Collective collective, int root, bool inPlace) const {
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
    algorithms.execute(collective, communicator_, stream_,
                       {.in = in.data() + inAt,
                        .out = out,
                        .inBytes = inCount * sizeof(T),
                        .outBytes = outCount * sizeof(T),
                        .type = DataType::int32,
                        .op = reduces(collective) ? ReduceOp::sum : ReduceOp::none,
                        .root = hasRoot(collective) ? root : 0});
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
    bool const fromRoot = collective == Collective::broadcast || collective == Collective::scatter;
    return valueOf(fromRoot ? static_cast<std::size_t>(root) : i / count_, at);
  }

  Communicator const& communicator_;
  Stream stream_;
  std::size_t count_, ranks_, self_;
};

bool movesData(Collective collective) {
  return collective != Collective::sendRecv && collective != Collective::barrier;
}

struct Outcome {
  std::size_t calls = 0, wrong = 0;

  void add(Collective collective, std::size_t count, std::size_t wrongHere) {
    ++calls;
    wrong += wrongHere;
    if (wrongHere != 0) std::printf("%zu wrong: %s, %zu\n", wrongHere, std::string(nameOf(collective)).c_str(), count);
  }
};

Outcome runAll(Communicator const& communicator, AlgorithmCollection const& algorithms) {
  Outcome outcome;
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

}  // namespace

int main(int count, char** values) {
  try {
    Communicator const communicator(bootstrapFromEnvironment(),
                                    Device{DeviceKind::sim, launchFromEnvironment().localRank});
    auto const algorithms = AlgorithmCollection::defaults();
    auto const outcome = count == 3 ? countTraffic(communicator, algorithms, std::stoul(values[1]), values[2])
                                    : runAll(communicator, algorithms);
    std::printf("rank %d of %d nodes: %zu calls, %zu wrong\n", communicator.rank(), World::of(communicator).nodes,
                outcome.calls, outcome.wrong);
    communicator.bootstrap()->barrier();
    return outcome.wrong == 0 ? 0 : 1;
  } catch (Error const& error) {
    std::fprintf(stderr, "%s: %s\n", std::string(nameOf(error.code())).c_str(), error.what());
    return 1;
  }
}
