// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a job over several hosts, with a simulated GPU: every collective from the host, in place and apart,
// against what must come out. Started by any launcher; ends with 0 where all was well, else prints what was not and
// ends with 1.
#include <cstdio>
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

}  // namespace

int main() {
  try {
    Communicator const communicator(bootstrapFromEnvironment(),
                                    Device{DeviceKind::sim, launchFromEnvironment().localRank});
    auto const algorithms = AlgorithmCollection::defaults();
    std::size_t wrong = 0, calls = 0;
    for (std::size_t const count : {1, 1001, 20000}) {
      Job const job(communicator, count);
      for (auto const collective : collectives) {
        if (collective == Collective::sendRecv || collective == Collective::barrier) continue;
        for (bool const inPlace : {false, true}) {
          ++calls;
          int const root = static_cast<int>(calls) % communicator.size();
          auto const here = job.run(algorithms, collective, root, inPlace);
          if (here != 0) std::printf("%zu wrong: %s, %zu\n", here, std::string(nameOf(collective)).c_str(), count);
          wrong += here;
        }
      }
    }
    std::printf("rank %d of %d nodes: %zu calls, %zu wrong\n", communicator.rank(), World::of(communicator).nodes,
                calls, wrong);
    communicator.bootstrap()->barrier();
    return wrong == 0 ? 0 : 1;
  } catch (Error const& error) {
    std::fprintf(stderr, "%s: %s\n", std::string(nameOf(error.code())).c_str(), error.what());
    return 1;
  }
}
