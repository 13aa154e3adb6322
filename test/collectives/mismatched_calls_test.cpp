// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls that differ between ranks, where MSCCLPP_CHECK_CALLS asks to compare them.
#include <cstdlib>
#include <string>
#include <vector>

#include "collectives/every_collective.hpp"

using namespace mscclpp_test;

namespace {

// Before the environment is read.
[[maybe_unused]] bool const asked = ::setenv("MSCCLPP_CHECK_CALLS", "1", 1) == 0;

}  // namespace

TEST_CASE("ranks whose calls differ all throw, naming both calls, and go on") {
  forEachRankOn(DeviceKind::sim, 3, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    std::vector<std::unique_ptr<Exchange>> kept;
    auto const make = [&](auto const& change) {
      kept.push_back(std::make_unique<Exchange>(communicator, Collective::allReduce, 64, 0, true, kept.size(), false));
      auto call = kept.back()->call(true);
      auto collective = Collective::allReduce;
      change(collective, call);
      algorithms.execute(collective, communicator, stream, call);
      communicator.synchronize(stream);
    };
    auto const right = [&] {
      make([](Collective&, CollectiveCall&) {});
      CHECK(kept.back()->wrong() == 0);
      communicator.bootstrap()->barrier();
    };
    auto const differing = [&](char const* mine, char const* theirs, auto const& change) {
      auto const text = errorOf(
          [&] {
            make([&](Collective& collective, CollectiveCall& call) {
              if (communicator.rank() == 1) change(collective, call);
            });
          },
          ErrorCode::invalidUsage);
      checkContains(text, "the ranks' calls differ");
      checkContains(text, std::string("rank 0: ") + mine);
      checkContains(text, std::string("rank 1: ") + theirs);
      right();
    };
    right();
    differing("allreduce of 256 bytes", "allreduce of 128 bytes",
              [](Collective&, CollectiveCall& call) { call.inBytes = call.outBytes = 128; });
    differing("allreduce", "allreduce", [](Collective&, CollectiveCall& call) { call.op = ReduceOp::max; });
    differing("allreduce of 256 bytes of float32", "allreduce of 256 bytes of int32",
              [](Collective&, CollectiveCall& call) { call.type = DataType::int32; });
    differing("allreduce", "broadcast", [](Collective& collective, CollectiveCall& call) {
      collective = Collective::broadcast;
      call.op = ReduceOp::none;
      call.root = 2;
    });
    differing("allreduce", "allreduce", [](Collective&, CollectiveCall& call) { call.symmetric = false; });
  });
}
