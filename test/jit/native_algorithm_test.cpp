// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Users' algorithms from a source: chosen by a collection, of any type and operation, refused where the source is
// wrong.
#include "mscclpp/jit/native_algorithm.hpp"

#include <doctest/doctest.h>

#include <fstream>

#include "jit/cache.hpp"
#include "jit/kernels.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp_test;

namespace {

OwnCache const ownCache;

constexpr char const* text = R"(#include "mscclpp/mscclpp.hpp"
using namespace mscclpp;
template <class T, class Op>
struct Mine {
  MSCCLPP_DEVICE void operator()(View<T const> in, View<T> out, DeviceTeam const& team, int) const {
    AllReduce<OneShot, PacketTransport<LL16>, Op>{team}(thisGrid(), in, out);
  }
};
template <class T>
struct MyGather {
  MSCCLPP_DEVICE void operator()(View<T const> in, View<T> out, DeviceTeam const& team, int) const {
    AllGather<OneExchange, PacketTransport<LL16>>{team}(thisGrid(), in, out);
  }
};
)";

template <class Template>
layout::WorkspaceRequirement workspaceOf(int ranks, LaunchShape const& shape, std::uint64_t) {
  return Template::requirement(static_cast<unsigned>(ranks), shape.blocks, shape.threads);
}

jit::DeviceAlgorithm allReduce(std::string source) {
  return {.name = "mine",
          .collective = Collective::allReduce,
          .source = {std::move(source), "mine.cpp"},
          .type = "Mine",
          .shape = {.blocks = 2, .threads = 64},
          .workspace = &workspaceOf<AllReduce<OneShot, PacketTransport<LL16>, Sum>>};
}

template <class T>
std::vector<T> values(std::size_t count, int value) {
  return std::vector<T>(count, convertNumber<T>(static_cast<float>(value)));
}

template <class T>
void check(AlgorithmCollection const& algorithms, Communicator const& communicator, CollectiveCall call,
           Collective collective, int expected, std::size_t count, std::size_t outCount) {
  Stream const stream(communicator.device());
  GpuBuffer<T> const in(communicator.device(), count), out(communicator.device(), outCount);
  copyToDevice(in, std::span<T const>(values<T>(count, communicator.rank() + 1)));
  communicator.bootstrap()->barrier();
  call.in = in.data();
  call.out = out.data();
  call.inBytes = in.bytes();
  call.outBytes = out.bytes();
  call.type = dataTypeOf<T>();
  algorithms.execute(collective, communicator, stream, call);
  communicator.synchronize(stream);
  auto const got = copyToHost(out);
  bool right = true;
  for (std::size_t i = 0; i < outCount; ++i) {
    auto const wanted = expected != 0 ? expected : static_cast<int>(i / count) + 1;
    right = right && convertNumber<float>(got[i]) == static_cast<float>(wanted);
  }
  CHECK(right);
  communicator.bootstrap()->barrier();
}

}  // namespace

TEST_CASE("calls go to the user's kernel, of their type and operation") {
  auto const path = ownCache.folder.file("mine.cpp");
  std::ofstream(path) << text;
  AlgorithmCollection algorithms;
  auto mine = allReduce("");
  mine.source = jit::Source::fromFile(path);
  algorithms.add(jit::nativeAlgorithm(mine));
  algorithms.add(jit::nativeAlgorithm({.name = "gather",
                                       .collective = Collective::allGather,
                                       .source = {text, "mine.cpp"},
                                       .type = "MyGather",
                                       .shape = {.blocks = 1, .threads = 64},
                                       .workspace = &workspaceOf<AllGather<OneExchange, PacketTransport<LL16>>>}));
  algorithms.setSelector([](SelectionRequest const& request) {
    return Selection{.algorithm = request.collective == Collective::allReduce ? "mine" : "gather"};
  });
  runRanks(devicesInTurn(kernelDevice, 2), [&](Communicator& communicator) {
    auto const reduce = Collective::allReduce;
    check<float>(algorithms, communicator, {.op = ReduceOp::sum}, reduce, 3, 1000, 1000);
    check<float>(algorithms, communicator, {.op = ReduceOp::sum, .blocks = 1, .threads = 32}, reduce, 3, 7, 7);
    check<BFloat16>(algorithms, communicator, {.op = ReduceOp::max}, reduce, 2, 333, 333);
    check<std::int32_t>(algorithms, communicator, {}, Collective::allGather, 0, 100, 200);
  });
  CHECK(jit::Cache::instance().counts().made == 3);
}

TEST_CASE("a source that does not compile is the first call's error, on all ranks") {
  AlgorithmCollection algorithms;
  std::string wrong = text;
  wrong.replace(wrong.find("thisGrid"), 8, "thatGrid");
  algorithms.add(jit::nativeAlgorithm(allReduce(wrong)));
  algorithms.setSelector([](SelectionRequest const&) { return Selection{.algorithm = "mine"}; });
  runRanks(devicesInTurn(kernelDevice, 2), [&](Communicator& communicator) {
    Stream const stream(communicator.device());
    GpuBuffer<float> const x(communicator.device(), 64);
    CHECK_THROWS_WITH_AS(algorithms.execute(Collective::allReduce, communicator, stream,
                                            {.in = x.data(),
                                             .out = x.data(),
                                             .inBytes = 256,
                                             .outBytes = 256,
                                             .type = DataType::float32,
                                             .op = ReduceOp::sum}),
                         doctest::Contains(kernelDevice == DeviceKind::cuda ? "mine.cpp(6)" : "mine.cpp:6:"), Error);
  });
}
