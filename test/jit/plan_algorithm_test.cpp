// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan of a collection is compiled by itself where MSCCLPP_JIT says so.
#include "mscclpp/jit/plan_algorithm.hpp"

#include <doctest/doctest.h>

#include "dsl/programs.hpp"
#include "jit/cache.hpp"
#include "jit/kernels.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"

using namespace mscclpp_test;

namespace {
OwnCache const ownCache;
}

TEST_CASE("calls that a plan is for are made by its kernels") {
  ::setenv("MSCCLPP_JIT", "on", 1);
  auto algorithms = AlgorithmCollection::defaults();
  algorithms.prefer(jit::planAlgorithm(dsl::ExecutionPlan(dsl::build<dsl_test::TwoShotPackets<2>>())));
  runRanks(devicesInTurn(DeviceKind::sim, 2), [&](Communicator& communicator) {
    constexpr std::size_t count = 600;
    Stream const stream(communicator.device());
    GpuBuffer<float> const data(communicator.device(), count);
    for (auto const op : {ReduceOp::sum, ReduceOp::max}) {
      copyToDevice(data,
                   std::span<float const>(std::vector<float>(count, static_cast<float>(communicator.rank() + 1))));
      communicator.bootstrap()->barrier();
      algorithms.execute(Collective::allReduce, communicator, stream,
                         {.in = data.data(),
                          .out = data.data(),
                          .inBytes = data.bytes(),
                          .outBytes = data.bytes(),
                          .type = DataType::float32,
                          .op = op});
      communicator.synchronize(stream);
      CHECK(copyToHost(data) == std::vector<float>(count, op == ReduceOp::sum ? 3 : 2));
      communicator.bootstrap()->barrier();
    }
  });
  CHECK(jit::Cache::instance().counts().made == 2);  // of each operation, which the ranks share
  ::setenv("MSCCLPP_JIT", "perhaps", 1);
  CHECK_THROWS_AS((void)jit::planAlgorithm(dsl::ExecutionPlan(dsl::build<dsl_test::TwoShotPackets<2>>())), Error);
}
