// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a program on every rank, several calls of different sizes in one stream, and compares every element of every
// buffer with what the collective demands.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "mscclpp/dsl/core/demand.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/dsl/plan_context.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

namespace dsl_test {

using namespace mscclpp;
using namespace mscclpp_test;

inline namespace MSCCLPP_BACKEND {

// First element of chunk `chunk` of a buffer whose slices hold `count` elements in `perSlice` chunks.
inline std::size_t chunkStart(std::size_t count, std::size_t elementBytes, int perSlice, int chunk) {
  auto const bytes = count * elementBytes, units = (bytes + 15) / 16;
  auto const n = static_cast<std::size_t>(perSlice), c = static_cast<std::size_t>(chunk % perSlice);
  auto const start = std::min((units / n * c + std::min(c, units % n)) * 16, bytes);
  // The end of a slice's last chunk is where the next slice begins.
  return static_cast<std::size_t>(chunk / perSlice) * count + start / elementBytes;
}
inline std::size_t chunkEnd(std::size_t count, std::size_t elementBytes, int perSlice, int chunk) {
  if (chunk % perSlice == perSlice - 1) return static_cast<std::size_t>(chunk / perSlice + 1) * count;
  return chunkStart(count, elementBytes, perSlice, chunk + 1);
}

// What rank `rank`'s output must be; elements that nothing is demanded of are those of `before`.
template <class T, class Op>
std::vector<T> expectedOutput(dsl::Program const& program, std::vector<std::vector<T>> const& inputs, int rank,
                              std::size_t count, std::vector<T> before) {
  using A = DefaultAccumulator<T>;
  int const inChunks = program.perSlice(dsl::BufferKind::input), outChunks = program.perSlice(dsl::BufferKind::output);
  for (int chunk = 0; chunk < program.collective.outputChunks(); ++chunk) {
    auto const holds = dsl::demanded(program, rank, chunk);
    if (holds.empty()) continue;
    auto const first = chunkStart(count, sizeof(T), outChunks, chunk),
               end = chunkEnd(count, sizeof(T), outChunks, chunk);
    for (auto i = first; i < end; ++i) {
      A total{};
      bool begun = false;
      for (auto const& each : holds) {
        auto const from = chunkStart(count, sizeof(T), inChunks, each.chunk) + (i - first);
        auto const value = convertNumber<A>(inputs[static_cast<std::size_t>(each.rank)][from]);
        total = begun ? Op{}(total, value) : value;
        begun = true;
      }
      if (holds.size() > 1) total = Op{}.finish(total, static_cast<int>(holds.size()));
      before[i] = convertNumber<T>(total);
    }
  }
  return before;
}

// Small whole numbers, so that sums are exact in any order.
template <class T>
std::vector<T> wholeInput(std::uint64_t seed, int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = convertNumber<T>(static_cast<float>((seed * 7 + static_cast<std::uint64_t>(rank) * 3 + i * 5) % 4 + 1));
  }
  return values;
}

struct RunCase {
  std::vector<std::size_t> counts = {1000, 7, 1, 333};
  std::size_t offset = 0;
  std::uint64_t seed = 1;
  unsigned threads = 64;                              // of a block, at most
  dsl::PlanPackets packets = dsl::PlanPackets::ll16;  // of plans
  bool multicast = false;                             // buffers have multicast addresses, where the machine has such
};

// `start(in, out, count, inWindow, outWindow)` starts one call.
template <class T, class Op, class Start>
void checkRankCalls(Rank& rank, dsl::Program const& program, RunCase const& test, Start&& start) {
  auto const& collective = program.collective;
  auto const slices = [&](bool in) {
    return static_cast<std::size_t>(in ? collective.inputSlices() : collective.outputSlices());
  };
  struct Call {
    GpuBuffer<T> in, out;
    std::vector<MemoryWindow> windows;
    T *inAt, *outAt;
    std::vector<T> expected;
  };
  std::vector<Call> calls;
  std::uint64_t number = test.seed;
  for (auto const count : test.counts) {
    ++number;
    auto const inCount = count * slices(true), outCount = count * slices(false);
    auto const larger = std::max(inCount, outCount) + test.offset + 8;
    bool const multicast = test.multicast && isNvlsSupported(rank.device);
    bool const hosts = !rank.communicator.reaches((rank.rank + rank.size / 2) % rank.size);
    auto const use = hosts ? WindowUse::proxies : multicast ? WindowUse::multicast : WindowUse::threads;
    auto const memory = multicast ? MemoryKind::shareable : MemoryKind::standard;
    Call call{
        GpuBuffer<T>(rank.device, larger, memory), GpuBuffer<T>(rank.device, larger, memory), {}, nullptr, nullptr, {}};
    call.in.fill(0x5a);
    call.out.fill(0x5a);
    auto& target = program.inPlace ? call.in : call.out;
    call.inAt = call.in.data() + test.offset;
    call.outAt = target.data() + test.offset;
    if (program.inPlace && inCount != outCount) {
      (inCount < outCount ? call.inAt : call.outAt) += static_cast<std::size_t>(rank.rank) * count;
    }
    std::vector<std::vector<T>> inputs;
    for (int r = 0; r < rank.size; ++r) inputs.push_back(wholeInput<T>(number, r, inCount));
    copyToDevice(call.in, std::span<T const>(inputs[static_cast<std::size_t>(rank.rank)]),
                 static_cast<std::size_t>(call.inAt - call.in.data()));
    call.expected = copyToHost(target);
    auto const outOffset = static_cast<std::ptrdiff_t>(call.outAt - target.data());
    auto const result = expectedOutput<T, Op>(
        program, inputs, rank.rank, count,
        std::vector<T>(call.expected.begin() + outOffset,
                       call.expected.begin() + outOffset + static_cast<std::ptrdiff_t>(outCount)));
    std::copy(result.begin(), result.end(), call.expected.begin() + outOffset);
    call.windows.emplace_back(rank.communicator, call.in.data(), call.in.bytes(), std::vector<int>{}, use);
    call.windows.emplace_back(rank.communicator, call.out.data(), call.out.bytes(), std::vector<int>{}, use);
    calls.push_back(std::move(call));
  }
  rank.meet();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    auto const& call = calls[i];
    start(call.inAt, call.outAt, test.counts[i], call.windows[0], call.windows[program.inPlace ? 0 : 1]);
    rank.pace();
  }
  rank.synchronize();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    auto got = copyToHost(program.inPlace ? calls[i].in : calls[i].out);
    // A collective in place may leave anything in the parts of the input that are not output.
    if (program.inPlace && collective.kind == dsl::CollectiveKind::reduceScatter) {
      auto const first = static_cast<std::size_t>(calls[i].outAt - calls[i].in.data());
      for (std::size_t e = 0; e < got.size(); ++e) {
        if (e < first || e >= first + test.counts[i]) got[e] = calls[i].expected[e];
      }
    }
    CHECK_MESSAGE(countDifferent(got, calls[i].expected) == 0, program.name.str(), ", rank ", rank.rank, ", count ",
                  test.counts[i]);
  }
}

// The program compiled in.
template <class P, class T = float, class Op = Sum, PacketFormat F = LL16>
void checkRun(RunCase const& test = {}) {
  auto const program = dsl::build<P>();
  if (!canRun(program.size())) return;
  auto const body = [&](Rank& rank) {
    auto const most = *std::max_element(test.counts.begin(), test.counts.end());
    dsl::PlanContext const context(rank.communicator, program, most * sizeof(T));
    auto shape = context.launchShape();
    shape.threads = std::min(shape.threads, test.threads);
    auto const start = [&](T const* in, T* out, std::size_t count, MemoryWindow const& inWindow,
                           MemoryWindow const& outWindow) {
      launch(rank.stream, shape, dsl::Kernel<P, T, Op, F>{}, in, out, count,
             context.deviceHandle(&inWindow, &outWindow), inWindow.deviceHandle(), outWindow.deviceHandle());
    };
    checkRankCalls<T, Op>(rank, program, test, start);
  };
  forEachRank(program.size(), body, {.seed = test.seed});
}

// A plan. `makeExecutor(communicator, plan, maxBytes)` makes what executes it on a rank.
template <class T, class Op, class MakeExecutor>
void checkPlanBy(MakeExecutor const& makeExecutor, dsl::Program program, RunCase const& test) {
  if (!canRun(program.size())) return;
  program.threads = std::min(program.threads, 64);
  dsl::ExecutionPlan const plan(program);
  auto const body = [&](Rank& rank) {
    auto const most = *std::max_element(test.counts.begin(), test.counts.end());
    auto const executor = makeExecutor(rank.communicator, plan, most * sizeof(T));
    auto const& collective = plan.program().collective;
    auto const start = [&](T const* in, T* out, std::size_t count, MemoryWindow const& inWindow,
                           MemoryWindow const& outWindow) {
      executor.execute(rank.stream, {.in = in,
                                     .out = out,
                                     .inBytes = count * sizeof(T) * static_cast<unsigned>(collective.inputSlices()),
                                     .outBytes = count * sizeof(T) * static_cast<unsigned>(collective.outputSlices()),
                                     .type = dataTypeOf<T>(),
                                     .op = reduceOpOf<Op>(),
                                     .packets = test.packets,
                                     .inWindow = &inWindow,
                                     .outWindow = &outWindow});
    };
    checkRankCalls<T, Op>(rank, plan.program(), test, start);
  };
  forEachRank(program.size(), body, {.seed = test.seed});
}

// Interpreted.
template <class T = float, class Op = Sum>
void checkPlan(dsl::Program program, RunCase const& test = {}) {
  auto const make = [](Communicator const& communicator, dsl::ExecutionPlan const& plan, std::uint64_t maxBytes) {
    return dsl::PlanExecutor(communicator, plan, maxBytes);
  };
  checkPlanBy<T, Op>(make, std::move(program), test);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace dsl_test
