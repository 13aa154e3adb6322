// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who looks on: counts of calls, and ranges for profilers that read NVTX, through an injected library
// (nvtx_reader.cpp).
#include "mscclpp/collectives/call_counts.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collectives/ranks.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/message_group.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"

using namespace mscclpp_test;

namespace {

constexpr int ranks = 3;
constexpr std::size_t count = 600;

using Found = std::map<std::pair<Collective, std::string>, std::pair<std::uint64_t, std::uint64_t>>;
Found found() {
  Found result;
  for (auto const& each : CallCounts::all()) result[{each.collective, each.algorithm}] = {each.calls, each.bytes};
  return result;
}

struct Buffers {
  explicit Buffers(Communicator const& communicator)
      : stream(communicator.device()), in(communicator.device(), count), out(communicator.device(), count * ranks) {}
  CollectiveCall call(std::size_t outCount) const {
    return {.in = in.data(),
            .out = out.data(),
            .inBytes = count * sizeof(float),
            .outBytes = outCount * sizeof(float),
            .type = DataType::float32,
            .op = ReduceOp::sum};
  }
  Stream stream;
  GpuBuffer<float> in;
  GpuBuffer<float> out;
};

}  // namespace

TEST_CASE("calls are counted by collective and algorithm, from the start on") {
  auto const algorithms = AlgorithmCollection::defaults();
  // A user's algorithm that is made of the library's: one call, not two.
  auto users = AlgorithmCollection::defaults();
  users.add(std::make_shared<NativeAlgorithm>(
      "mine", Collective::allReduce,
      NativeFunctions{
          .makeContext = [](Communicator const& communicator, CollectiveCall const&) -> std::shared_ptr<void> {
            return std::make_shared<Communicator const*>(&communicator);
          },
          .run =
              [inner = algorithms.at(Collective::allReduce, "oneshot_ll16")](
                  std::shared_ptr<void> const& communicator, CollectiveCall const& call, Stream const& stream) {
                inner->execute(**static_cast<Communicator const* const*>(communicator.get()), stream, call);
              }}));
  users.prefer(users.at(Collective::allReduce, "mine"));
  CHECK(CallCounts::all().empty());
  forEachRankOn(DeviceKind::sim, ranks, [&](Communicator& communicator) {
    Buffers const buffers(communicator);
    auto const reduce = buffers.call(count);
    auto gather = buffers.call(count * ranks);
    gather.op = ReduceOp::none;
    auto const library = algorithms.at(Collective::allReduce, "oneshot_ll16");
    library->execute(communicator, buffers.stream, reduce);
    communicator.synchronize(buffers.stream);
    communicator.bootstrap()->barrier();
    if (communicator.rank() == 0) {
      CHECK(CallCounts::all().empty());  // nobody had asked
      CallCounts::start();
    }
    communicator.bootstrap()->barrier();
    for (int i = 0; i < 5; ++i) library->execute(communicator, buffers.stream, reduce);
    for (int i = 0; i < 2; ++i) {
      algorithms.at(Collective::allGather, "ll16")->execute(communicator, buffers.stream, gather);
      users.execute(Collective::allReduce, communicator, buffers.stream, reduce);
    }
    algorithms.execute(Collective::allReduce, communicator, buffers.stream, reduce);  // the library's choice
    auto ring = reduce;
    ring.op = ReduceOp::none;
    algorithms.execute(Collective::sendRecv, communicator, buffers.stream, ring);
    communicator.synchronize(buffers.stream);
    communicator.bootstrap()->barrier();
    if (communicator.rank() == 0) CallCounts::stop();
    communicator.bootstrap()->barrier();
    library->execute(communicator, buffers.stream, reduce);
    communicator.synchronize(buffers.stream);
    communicator.bootstrap()->barrier();
  });
  auto counts = found();
  constexpr std::uint64_t bytes = count * sizeof(float);
  CHECK(counts[{Collective::allGather, "ll16"}] == std::pair(2 * ranks * 1ul, 2 * ranks * ranks * bytes));
  CHECK(counts[{Collective::allReduce, "mine"}] == std::pair(2 * ranks * 1ul, 2 * ranks * bytes));
  CHECK(counts[{Collective::sendRecv, "messages"}] == std::pair(ranks * 1ul, ranks * bytes));
  std::uint64_t reductions = 0;
  for (auto const& [key, value] : counts) reductions += key.first == Collective::allReduce ? value.first : 0;
  CHECK(reductions == (5 + 2 + 1) * ranks);
  CHECK(counts[{Collective::allReduce, "oneshot_ll16"}].first >= 5 * ranks);

  auto const file = "counts." + std::to_string(::getpid());
  CallCounts::write(file);
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  std::remove(file.c_str());
  CHECK(contains(text.str(), "collective "));
  CHECK(contains(text.str(), "allgather      ll16 "));
  CHECK(contains(errorOf([] { CallCounts::write("/no/such/folder/counts"); }, ErrorCode::systemError),
                 "/no/such/folder/counts"));
  CallCounts::start();
  CHECK(CallCounts::all().empty());
  CallCounts::stop();
}

TEST_CASE("a profiler sees a range for each call") {
  std::string const file = NVTX_READER;
  if (file.empty()) {
    MESSAGE("left out: this build has no NVTX");
    return;
  }
  auto* const reader = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE_MESSAGE(reader != nullptr, "the library asked for no NVTX_INJECTION64_PATH");
  auto* const symbol = ::dlsym(reader, "readRanges");
  REQUIRE(symbol != nullptr);
  auto const ranges = reinterpret_cast<char const* (*)()>(symbol);
  (void)ranges();
  auto const algorithms = AlgorithmCollection::defaults();
  forEachRankOn(DeviceKind::sim, 2, [&](Communicator& communicator) {
    Buffers const buffers(communicator);
    for (int i = 0; i < 2; ++i) {
      algorithms.at(Collective::allReduce, "oneshot_ll16")->execute(communicator, buffers.stream, buffers.call(count));
    }
    communicator.synchronize(buffers.stream);
    communicator.bootstrap()->barrier();
  });
  std::string const one = "mscclpp: allreduce oneshot_ll16 2400 B\n";
  std::string const seen = ranges();
  CHECK_MESSAGE(seen == one + one + one + one + "4 ended\n", seen);
}
