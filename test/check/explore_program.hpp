// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs, right or wrong, on the simulated machine under many schedules: three calls in a row, with callers that
// write their input and output before each call and look at every element behind it.
#pragma once

#include <algorithm>
#include <vector>

#include "check/explore_ranks.hpp"
#include "mscclpp/dsl/core/demand.hpp"
#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/dsl/plan_context.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

namespace check_test {

using Word = std::uint32_t;
constexpr unsigned threads = 64;
constexpr std::size_t chunkWords = 8 * threads;  // all threads have a part of every turn's chunk
constexpr int calls = 3;

MSCCLPP_DEVICE Word inputWord(int rank, int call, std::size_t i) {
  return static_cast<Word>(1000 * (call + 1) + 100 * rank + static_cast<int>(i / chunkWords));
}

struct CallerWrites {
  MSCCLPP_DEVICE void operator()(Word* in, std::size_t inWords, Word* out, std::size_t outWords, int rank,
                                 int call) const {
    for (std::size_t i = thisBlock().rank(); i < outWords; i += threads) out[i] = 7;
    thisBlock().sync();
    for (std::size_t i = thisBlock().rank(); i < inWords; i += threads) in[i] = inputWord(rank, call, i);
  }
};

struct CallerReads {
  MSCCLPP_DEVICE void operator()(Word const* out, Word const* expected, std::size_t words) const {
    for (std::size_t i = thisBlock().rank(); i < words; i += threads) {
      if (out[i] != expected[i]) arch::trap("a wrong result");
    }
  }
};

struct CallerKeeps {
  MSCCLPP_DEVICE void operator()(Word const* out, Word* kept, std::size_t words) const {
    for (std::size_t i = thisBlock().rank(); i < words; i += threads) kept[i] = out[i];
  }
};

struct PlanKernel {
  MSCCLPP_DEVICE void operator()(Word const* in, Word* out, std::size_t count, layout::PlanHandle const& plan,
                                 layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow) const {
    dsl_impl::PlanRunner<Word, Sum, LL16> runner(plan, inWindow, outWindow, {in, out, count});
    dsl_impl::runTable(runner, plan);
    runner.finish();
  }
};

// Result of one call; chunks are all equally long.
inline std::vector<Word> expectedWords(dsl::Program const& program, int rank, int call) {
  std::vector<Word> words;
  for (int chunk = 0; chunk < program.collective.outputChunks(); ++chunk) {
    Word total = 0;
    for (auto const& each : dsl::demanded(program, rank, chunk)) {
      total += inputWord(each.rank, call, static_cast<std::size_t>(each.chunk) * chunkWords);
    }
    words.insert(words.end(), chunkWords, total);
  }
  return words;
}

// What the output of each rank holds behind each call, one after the other.
using Outputs = std::vector<std::vector<Word>>;

inline Outputs demandedOutputs(dsl::Program const& program) {
  Outputs all;
  for (int rank = 0; rank < program.size(); ++rank) {
    all.emplace_back();
    for (int call = 0; call < calls; ++call) {
      auto const words = expectedWords(program, rank, call);
      all.back().insert(all.back().end(), words.begin(), words.end());
    }
  }
  return all;
}

// `expected` are compared where they are given; else they are written.
inline void runRank(Rank& rank, dsl::Program const& program, dsl::Verdict const& verdict, Outputs& outputs,
                    bool compares) {
  auto const& c = program.collective;
  auto const inWords = static_cast<std::size_t>(c.inputChunks()) * chunkWords;
  auto const outWords = static_cast<std::size_t>(c.outputChunks()) * chunkWords;
  auto const count = static_cast<std::size_t>(c.inputPerSlice()) * chunkWords;
  dsl::PlanContext const context(rank.communicator, program, verdict, count * sizeof(Word));
  auto const larger = std::max(inWords, outWords);
  GpuBuffer<Word> const in(rank.device, larger, MemoryKind::shareable),
      other(rank.device, larger, MemoryKind::shareable);
  GpuBuffer<Word> const kept(rank.device, outWords * calls);
  auto const& out = program.inPlace ? in : other;
  MemoryWindow const inWindow(rank.communicator, in.data(), in.bytes(), {}, WindowUse::multicast);
  MemoryWindow const outWindow(rank.communicator, out.data(), out.bytes(), {}, WindowUse::multicast);
  auto* const inAt =
      in.data() + (program.inPlace && inWords < outWords ? static_cast<std::size_t>(rank.rank) * inWords : 0);
  auto& own = outputs[static_cast<std::size_t>(rank.rank)];
  if (compares) copyToDevice(kept, std::span<Word const>(own));
  for (int call = 0; call < calls; ++call) {
    launch(rank.stream, {.blocks = 1, .threads = threads}, CallerWrites{}, inAt, inWords, out.data(), outWords,
           rank.rank, call);
    launch(rank.stream, {.blocks = context.launchShape().blocks, .threads = threads}, PlanKernel{}, inAt, out.data(),
           count, context.deviceHandle(&inWindow, &outWindow), inWindow.deviceHandle(), outWindow.deviceHandle());
    auto* const behind = kept.data() + static_cast<std::size_t>(call) * outWords;
    if (compares) {
      launch(rank.stream, {.blocks = 1, .threads = threads}, CallerReads{}, out.data(), behind, outWords);
    } else {
      launch(rank.stream, {.blocks = 1, .threads = threads}, CallerKeeps{}, out.data(), behind, outWords);
    }
  }
  rank.synchronize();
  context.stopPorts();
  rank.communicator.bootstrap()->barrier();
  if (!compares) own = copyToHost(kept);
}

inline sim::ExploreResult exploreProgram(dsl::Program const& program, sim::ExploreOptions options, Outputs& outputs,
                                         bool compares) {
  dsl::Verdict pretended;  // also those that are wrong shall run
  std::size_t steps = 0;
  for (auto const& rank : program.ranks) {
    for (auto const& block : rank.blocks) steps += block.steps.size();
  }
  pretended.reductions.resize(steps);
  options.maxFindings = 1;
  options.stopAtFirst = true;
  options.shrink = false;
  return exploreRanks(
      {.ranks = program.size()}, [&](Rank& rank) { runRank(rank, program, pretended, outputs, compares); }, options);
}

// Against what the collective demands.
inline sim::ExploreResult exploreProgram(dsl::Program const& program, sim::Strategy strategy, int schedules,
                                         std::uint64_t seed) {
  auto outputs = demandedOutputs(program);
  return exploreProgram(program, {.strategy = strategy, .schedules = schedules, .seed = seed, .preemption = 0.1},
                        outputs, true);
}

}  // namespace check_test
