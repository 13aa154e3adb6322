// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives started from the host, without a kernel of one's own: the library chooses algorithm and launch by size,
// keeps what they need per stream, and the program may name algorithms or choose itself.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

void require(bool right, std::string const& what) {
  if (!right) throw Error(ErrorCode::internalError, what + " is wrong");
}

void runRank(Communicator& communicator) {
  auto const device = communicator.device();
  auto const ranks = static_cast<std::size_t>(communicator.size());
  auto const rank = static_cast<std::size_t>(communicator.rank());
  Stream const stream(device);
  auto algorithms = AlgorithmCollection::defaults();

  // All-reduce, in place; the library chooses.
  for (std::size_t count : {100, 5'000, 50'000}) {
    GpuBuffer<float> x(device, count);
    copyToDevice(x, std::span<float const>(std::vector<float>(count, static_cast<float>(rank + 1))));
    CollectiveCall const call{.in = x.data(),
                              .out = x.data(),
                              .inBytes = x.bytes(),
                              .outBytes = x.bytes(),
                              .type = DataType::float32,
                              .op = ReduceOp::sum};
    algorithms.execute(Collective::allReduce, communicator, stream, call);
    communicator.synchronize(stream);
    auto const total = static_cast<float>(ranks * (ranks + 1) / 2);
    auto const result = copyToHost(x);
    require(std::all_of(result.begin(), result.end(), [&](float value) { return value == total; }), "all-reduce");
    if (rank == 0) {
      std::printf("all-reduce of %zu floats by %s\n", count,
                  algorithms.choose(Collective::allReduce, communicator, call).algorithm.c_str());
    }
  }

  // All-gather by an algorithm of one's choice; this rank's part is already in place.
  GpuBuffer<std::int32_t> all(device, 10 * ranks);
  copyToDevice(all, std::span<std::int32_t const>(std::vector<std::int32_t>(10, static_cast<std::int32_t>(rank))),
               10 * rank);
  algorithms.at(Collective::allGather, "ll16")
      ->execute(communicator, all.data() + 10 * rank, all.data(), all.bytes() / ranks, all.bytes(), DataType::int32,
                ReduceOp::none, stream);
  communicator.synchronize(stream);
  auto const gathered = copyToHost(all);
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    require(gathered[i] == static_cast<std::int32_t>(i / 10), "all-gather");
  }

  // A selector of one's own goes before tuned profiles and the library's rule.
  algorithms.setSelector([](SelectionRequest const& request) -> std::optional<Selection> {
    if (request.collective == Collective::broadcast && request.bytes < 4096) return Selection{"ll8"};
    return std::nullopt;
  });
  GpuBuffer<double> y(device, 64);
  if (rank == 1 % ranks) copyToDevice(y, std::span<double const>(std::vector<double>(64, 0.5)));
  algorithms.execute(Collective::broadcast, communicator, stream,
                     {.in = y.data(),
                      .out = y.data(),
                      .inBytes = y.bytes(),
                      .outBytes = y.bytes(),
                      .type = DataType::float64,
                      .root = static_cast<int>(1 % ranks)});
  communicator.synchronize(stream);
  auto const sent = copyToHost(y);
  require(std::all_of(sent.begin(), sent.end(), [](double value) { return value == 0.5; }), "broadcast");
  if (rank == 0) std::printf("%zu ranks: right on every rank\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main() {
  try {
    runRanks(kernelDevice, std::min(4, Device::count(kernelDevice)), runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
