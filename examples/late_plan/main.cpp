// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan for as many ranks as there turn out to be, written as JSON as MSCCL++'s DSL does, loaded, and compiled while
// the program runs: an all-gather in place in which the parts go round a ring.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/jit/plan_executor.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

std::string ring(int ranks) {
  dsl::Builder p({.name = "ring", .collective = dsl::allGather(ranks), .inPlace = true});
  // Both ends of a channel one after the other: of two ranks, each is the other's next and previous.
  std::vector<dsl::MemoryChannelRef> ahead, back;  // from a rank to the next, and its other end
  for (int r = 0; r < ranks; ++r) {
    int const next = (r + 1) % ranks;
    ahead.push_back(p.memoryChannel(next, r));
    back.push_back(p.memoryChannel(r, next));
  }
  for (int r = 0; r < ranks; ++r) {
    int const next = (r + 1) % ranks, previous = (r + ranks - 1) % ranks;
    auto &to = ahead[static_cast<std::size_t>(r)], &from = back[static_cast<std::size_t>(previous)];
    from.signal({.relaxed = true});  // come in
    to.wait({.relaxed = true});
    for (int step = 0; step + 1 < ranks; ++step) {
      int const part = (r + ranks - step) % ranks;
      to.put(p.rank(next).output()[part], p.rank(r).output()[part]);
      to.signal();
      from.wait();
    }
  }
  return dsl::toJson(dsl::finish(p));
}

}  // namespace

int main() {
  int const ranks = std::clamp(Device::count(kernelDevice), 2, 8);
  constexpr std::size_t count = 1000;
  bool right = true;
  try {
    dsl::ExecutionPlan const plan(dsl::programFromJson(ring(ranks), "ring"));
    runRanks(devicesInTurn(kernelDevice, ranks), [&](Communicator& communicator) {
      jit::PlanExecutor const executor(communicator, plan, count * sizeof(float));
      auto const parts = static_cast<std::size_t>(ranks), own = static_cast<std::size_t>(communicator.rank());
      GpuBuffer<float> const all(communicator.device(), count * parts);
      MemoryWindow const window(communicator, all.data(), all.bytes());
      Stream const stream(communicator.device());
      for (bool const compiled : {false, true}) {
        if (compiled) executor.compile(DataType::float32, ReduceOp::none);
        all.fill(0);
        copyToDevice(all, std::span<float const>(std::vector<float>(count, static_cast<float>(own + 1))), own * count);
        communicator.bootstrap()->barrier();
        executor.execute(stream, {.in = all.data() + own * count,
                                  .out = all.data(),
                                  .inBytes = count * sizeof(float),
                                  .outBytes = all.bytes(),
                                  .op = ReduceOp::none,
                                  .inWindow = &window,
                                  .outWindow = &window});
        communicator.synchronize(stream);
        auto const got = copyToHost(all);
        for (std::size_t i = 0; i < got.size(); ++i) right = right && got[i] == static_cast<float>(i / count + 1);
        communicator.bootstrap()->barrier();
      }
    });
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("%d ranks, interpreted and compiled: %s\n", ranks, right ? "right" : "WRONG");
  return right ? 0 : 1;
}
