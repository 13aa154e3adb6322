// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces started from the host, compared bit for bit with the same steps on the host; on either machine.
#pragma once

#include <memory>
#include <vector>

#include "collectives/ranks.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "support/reference.hpp"

namespace mscclpp_test {

// Input and output of one rank, and what the output must become.
template <class T, class Op>
struct Sums {
  Sums(Communicator const& communicator, std::size_t n, std::uint64_t seed)
      : in(communicator.device(), n + 1), out(communicator.device(), n + 1), count(n) {
    std::vector<std::vector<T>> inputs;
    for (int r = 0; r < communicator.size(); ++r) inputs.push_back(randomInput<T>(seed, r, n));
    for (auto total : reduceInRankOrder<DefaultAccumulator<T>, Op>(inputs)) expected.push_back(convertNumber<T>(total));
    copyToDevice(in, std::span<T const>(inputs[static_cast<std::size_t>(communicator.rank())]));
    out.fill(0x5a);
  }

  CollectiveCall call(bool inPlace = false) const {
    return {.in = in.data(),
            .out = (inPlace ? in : out).data(),
            .inBytes = count * sizeof(T),
            .outBytes = count * sizeof(T),
            .type = dataTypeOf<T>(),
            .op = reduceOpOf<Op>()};
  }
  std::size_t wrong(bool inPlace = false) const {
    auto all = copyToHost(inPlace ? in : out);
    all.resize(count);
    return countDifferent(all, expected);
  }

  GpuBuffer<T> in;
  GpuBuffer<T> out;
  std::size_t count;
  std::vector<T> expected;
};

// Every algorithm of the collection that does not refuse, over ragged counts, in place and not; then the choice.
template <class T, class Op>
void checkAllReduces(DeviceKind kind, int ranks, std::vector<std::size_t> const& counts) {
  forEachRankOn(kind, ranks, [&](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    std::uint64_t seed = 0;
    std::size_t ran = 0;
    for (auto count : counts) {
      for (bool inPlace : {false, true}) {
        for (auto const& algorithm : algorithms.algorithms()) {
          if (algorithm->collective() != Collective::allReduce) continue;
          Sums<T, Op> sums(communicator, count, ++seed);
          auto const call = sums.call(inPlace);
          if (!algorithm->refusal(communicator, call).empty()) continue;
          meetOnGpus(communicator);
          algorithm->execute(communicator, stream, call);
          communicator.synchronize(stream);
          CHECK_MESSAGE(sums.wrong(inPlace) == 0, algorithm->name(), " count ", count);
          ++ran;
          communicator.bootstrap()->barrier();
        }
        Sums<T, Op> sums(communicator, count, ++seed);
        meetOnGpus(communicator);
        algorithms.execute(Collective::allReduce, communicator, stream, sums.call(inPlace));
        communicator.synchronize(stream);
        CHECK_MESSAGE(sums.wrong(inPlace) == 0, "chosen, count ", count);
        communicator.bootstrap()->barrier();
      }
    }
    // Rarely used operations have a few algorithms.
    bool const rare = !std::is_same_v<Op, Sum> && !std::is_same_v<Op, Avg>;
    CHECK(ran >= 2 * counts.size() * (rare ? 2 : 7));
    releaseContexts(communicator);
    CHECK(contextCounts(communicator) == ContextCounts{});
  });
}

}  // namespace mscclpp_test
