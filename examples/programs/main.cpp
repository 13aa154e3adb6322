// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives of one's own, step by step: proved when this file is compiled, compiled into kernels, and, as plans, run
// without having been compiled in.
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

// The all-gather of the DSL's quick start: two ranks, each puts its part into the other's buffer. In place.
struct SimpleAllGather {
  static constexpr dsl::Spec spec{.name = "simple_allgather", .collective = dsl::allGather(2), .inPlace = true};
  static constexpr void define(dsl::Builder& p) {
    for (int src = 0; src < 2; ++src) {
      for (int dst = 0; dst < 2; ++dst) {
        if (src == dst) continue;
        auto channel = p.memoryChannel(dst, src);
        channel.signal({.tb = 0, .relaxed = true});  // the call has begun here: come in
        channel.wait({.tb = 0, .relaxed = true, .dataSync = dsl::after});
        channel.put(p.rank(dst).output()[src], p.rank(src).output()[src], {.tb = 0});
        channel.signal({.tb = 0, .dataSync = dsl::before});
        channel.wait({.tb = 0, .dataSync = dsl::after});
      }
    }
  }
};
static_assert(dsl::verify<SimpleAllGather>());

// An all-reduce of two ranks by packets, which need no signals: each reduces one half and sends it back.
struct PacketAllReduce {
  static constexpr dsl::Spec spec{.name = "packet_allreduce",
                                  .collective = dsl::allReduce(2),
                                  .inPlace = true,
                                  .protocol = dsl::Protocol::lowLatency,
                                  .instances = 2};
  static constexpr void define(dsl::Builder& p) {
    dsl::BufferRef const scratch[] = {p.rank(0).scratch(2), p.rank(1).scratch(2)};
    for (int rank = 0; rank < 2; ++rank) {
      auto const self = p.rank(rank);
      int const peer = 1 - rank;
      auto channel = p.memoryChannel(peer, rank);
      channel.putPackets(scratch[peer][0], self.input()[peer]);
      self.reducePackets(self.output()[rank], self.input()[rank], {scratch[rank][0]});
      channel.putPackets(scratch[peer][1], self.output()[rank]);  // fused with the step before
      self.unpackPackets(self.output()[peer], scratch[rank][1]);
    }
  }
};
static_assert(dsl::verify<PacketAllReduce>());

void require(bool right, char const* what) {
  if (!right) throw Error(ErrorCode::internalError, std::string(what) + " is wrong");
}

void runRank(Communicator& communicator) {
  constexpr std::size_t count = 1000;
  auto const rank = static_cast<std::size_t>(communicator.rank());
  Stream const stream(communicator.device());
  layout::WindowHandle const none{};

  // Compiled in. This one reaches into the peer's buffer, so that is in a window.
  GpuBuffer<float> gathered(communicator.device(), 2 * count);
  auto* const part = gathered.data() + rank * count;
  copyToDevice(gathered, std::span<float const>(std::vector<float>(count, static_cast<float>(rank + 1))), rank * count);
  MemoryWindow const window(communicator, gathered.data(), gathered.bytes());
  auto const gather = dsl::makeContext<SimpleAllGather>(communicator, count * sizeof(float));
  launch(stream, gather.launchShape(count * sizeof(float)), dsl::Kernel<SimpleAllGather, float>{}, part,
         gathered.data(), count, gather.deviceHandle(), window.deviceHandle(), window.deviceHandle());
  communicator.synchronize(stream);
  auto const all = copyToHost(gathered);
  for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == static_cast<float>(i / count + 1), "all-gather");

  // Every operation and type from the same program.
  GpuBuffer<bf16> x(communicator.device(), count);
  auto const reduce = dsl::makeContext<PacketAllReduce>(communicator, count * sizeof(bf16));
  copyToDevice(x, std::span<bf16 const>(std::vector<bf16>(count, bf16(static_cast<float>(3 * rank)))));
  launch(stream, reduce.launchShape(count * sizeof(bf16)), dsl::Kernel<PacketAllReduce, bf16, Max>{}, x.data(),
         x.data(), count, reduce.deviceHandle(), none, none);
  communicator.synchronize(stream);
  for (auto const value : copyToHost(x)) require(static_cast<float>(value) == 3, "all-reduce");

  // As a plan: text that this or another program loads, proves and runs.
  auto const text = dsl::toJson<PacketAllReduce>();
  dsl::ExecutionPlan const plan(dsl::programFromJson(text, "of this example"));
  dsl::PlanExecutor const executor(communicator, plan, count * sizeof(float));
  GpuBuffer<float> y(communicator.device(), count);
  copyToDevice(y, std::span<float const>(std::vector<float>(count, static_cast<float>(rank + 1))));
  executor.execute(stream, {.in = y.data(), .out = y.data(), .inBytes = y.bytes(), .outBytes = y.bytes()});
  communicator.synchronize(stream);
  for (auto const value : copyToHost(y)) require(value == 3, "plan");
  if (rank == 0) std::printf("two programs and a plan of %zu characters: right on both ranks\n", text.size());
  communicator.bootstrap()->barrier();
}

}  // namespace

int main() {
  if (Device::count(kernelDevice) < 2) {
    std::printf("left out: the programs are for two devices\n");
    return 0;
  }
  try {
    runRanks(kernelDevice, 2, runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
