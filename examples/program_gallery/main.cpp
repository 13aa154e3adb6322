// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs every program of programs.hpp, compiled in and as a plan, several calls in a row.
#include "programs.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/dsl/plan_context.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

constexpr std::size_t most = 5000;  // elements of a message
constexpr std::size_t counts[] = {most, 1, 77, most};

template <class P>
void run(Communicator& communicator) {
  static_assert(dsl::verify<P>());
  std::string const name(P::spec.name);
  auto const rank = static_cast<std::int32_t>(communicator.rank());
  Stream const stream(communicator.device());
  auto const context = dsl::makeContext<P>(communicator, most * sizeof(std::int32_t));
  dsl::ExecutionPlan const plan(dsl::programFromJson(dsl::toJson<P>(), name));
  dsl::PlanExecutor const executor(communicator, plan, most * sizeof(std::int32_t));
  GpuBuffer<std::int32_t> x(communicator.device(), most);
  MemoryWindow const window(communicator, x.data(), x.bytes());
  for (bool const compiled : {true, false}) {
    for (auto const count : counts) {
      std::vector<std::int32_t> values(most);
      for (std::size_t i = 0; i < most; ++i) values[i] = static_cast<std::int32_t>(i % 1000) * (rank + 1);
      copyToDevice(x, std::span<std::int32_t const>(values));
      communicator.bootstrap()->barrier();  // a peer may write into x from here on
      auto const bytes = count * sizeof(std::int32_t);
      if (compiled) {
        launch(stream, context.launchShape(bytes), dsl::Kernel<P, std::int32_t>{}, x.data(), x.data(), count,
               context.deviceHandle(), window.deviceHandle(), window.deviceHandle());
      } else {
        executor.execute(stream, {.in = x.data(),
                                  .out = x.data(),
                                  .inBytes = bytes,
                                  .outBytes = bytes,
                                  .type = DataType::int32,
                                  .inWindow = &window,
                                  .outWindow = &window});
      }
      communicator.synchronize(stream);
      auto const found = copyToHost(x);
      for (std::size_t i = 0; i < most; ++i) {
        auto const one = static_cast<std::int32_t>(i % 1000);
        if (found[i] == (i < count ? one * 10 : one * (rank + 1))) continue;
        throw Error(ErrorCode::internalError, name + ", " + (compiled ? "compiled" : "plan") + ": element " +
                                                  std::to_string(i) + " of " + std::to_string(count) +
                                                  " is wrong on rank " + std::to_string(rank));
      }
      communicator.bootstrap()->barrier();
    }
  }
  if (rank == 0) std::printf("%-20s right, compiled and as a plan\n", name.c_str());
}

void runRank(Communicator& communicator) {
  run<gallery::Ring<false>>(communicator);
  run<gallery::Ring<true>>(communicator);
  run<gallery::AllPairs<false>>(communicator);
  run<gallery::AllPairs<true>>(communicator);
  run<gallery::TwoLevel<false>>(communicator);
  run<gallery::TwoLevel<true>>(communicator);
  run<gallery::Pipelined<false>>(communicator);
  run<gallery::Pipelined<true>>(communicator);
  run<gallery::ThroughSwitch>(communicator);
}

}  // namespace

int main() {
  if (Device::count(kernelDevice) < gallery::ranks) {
    std::printf("left out: the programs are for %d devices\n", gallery::ranks);
    return 0;
  }
  try {
    runRanks(kernelDevice, gallery::ranks, runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
