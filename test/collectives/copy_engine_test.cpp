// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that copy engines carry out, through a stage so small that they take many chunks.
#include <string>
#include <vector>

#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

struct Run {
  Collective collective;
  int ranks;
  std::size_t count;  // as KernelCall::count
  std::uint64_t stageBytes;
  bool inPlace = false;
  std::uint64_t seed = 1;
  int root = 0;
};

void runRank(Rank& rank, Run const& run) {
  bool const scatter = run.collective == Collective::reduceScatter;
  auto const ranks = static_cast<std::size_t>(run.ranks);
  auto const* const kernel = KernelTable::instance().find(
      {rank.device.kind, run.collective, "copy_engine", DataType::float32, ReduceOp::sum, run.ranks});
  REQUIRE(kernel != nullptr);
  auto const inCount = scatter ? run.count * ranks : run.count;
  std::vector<std::vector<float>> inputs;
  for (int r = 0; r < run.ranks; ++r) inputs.push_back(randomInput<float>(run.seed, r, inCount));
  auto expected = reduceInRankOrder<float, Sum>(inputs);
  auto const part = static_cast<std::ptrdiff_t>(scatter ? run.count : 0) * rank.rank;
  if (scatter) {
    expected =
        std::vector<float>(expected.begin() + part, expected.begin() + part + static_cast<std::ptrdiff_t>(run.count));
  }

  Team const team(rank.communicator, {.blocks = 4, .stageBytes = run.stageBytes});
  GpuBuffer<float> const in(rank.device, inCount);
  GpuBuffer<float> const out(rank.device, inCount);
  MemoryWindow const inWindow(rank.communicator, in.data(), in.bytes());
  MemoryWindow const outWindow(rank.communicator, out.data(), out.bytes());
  std::vector<Stream> sides;
  for (unsigned i = 0; i < kernel->sideStreams; ++i) sides.emplace_back(rank.device);
  // Twice: the second call must find the stage free.
  for (int call = 0; call < 2; ++call) {
    copyToDevice(in, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
    rank.communicator.bootstrap()->barrier();
    auto* const to = run.inPlace ? in.data() + part : out.data();
    kernel->start({.stream = rank.stream,
                   .team = team.deviceHandle(),
                   .in = in.data(),
                   .out = to,
                   .count = run.count,
                   .root = run.root,
                   .outWindow = run.inPlace ? &inWindow.deviceHandle() : &outWindow.deviceHandle(),
                   .shape = {.blocks = 3, .threads = 64},
                   .sideStreams = sides.data()});
    rank.synchronize();
    if (run.collective == Collective::reduce && rank.rank != run.root) continue;
    std::vector<float> result(expected.size());
    copyToHost(std::span<float>(result), run.inPlace ? in : out, run.inPlace ? static_cast<std::size_t>(part) : 0);
    CHECK_MESSAGE(countDifferent(result, expected) == 0, "rank ", rank.rank, ", count ", run.count);
  }
}

void check(Run const& run) {
  forEachRank(run.ranks, [&](Rank& rank) { runRank(rank, run); }, {.seed = run.seed, .preemption = 0.2});
}

}  // namespace

TEST_CASE("many chunks, in turn through three slots") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    for (auto collective : {Collective::reduceScatter, Collective::allReduce}) {
      CAPTURE(seed);
      CAPTURE(nameOf(collective));
      check({.collective = collective, .ranks = 3, .count = 5001, .stageBytes = 2048, .seed = seed});
    }
  }
}

TEST_CASE("in place, one rank to several, little data") {
  for (auto collective : {Collective::reduceScatter, Collective::allReduce}) {
    CAPTURE(nameOf(collective));
    check({.collective = collective, .ranks = 4, .count = 3000, .stageBytes = 4096, .inPlace = true});
    for (int ranks : {1, 2, 5}) {
      check({.collective = collective, .ranks = ranks, .count = 700, .stageBytes = 4096});
      check({.collective = collective, .ranks = ranks, .count = 1, .stageBytes = 4096});
    }
  }
}

TEST_CASE("a reduction at any root") {
  for (int ranks : {1, 2, 4}) {
    for (bool inPlace : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(inPlace);
      check({.collective = Collective::reduce,
             .ranks = ranks,
             .count = 5001,
             .stageBytes = 4096,
             .inPlace = inPlace,
             .root = ranks - 1});
    }
  }
  check({.collective = Collective::reduce, .ranks = 2, .count = 5001, .stageBytes = 2048, .root = 0});
}

TEST_CASE("a stage without room is refused") {
  forEachRank(2, [](Rank& rank) {
    auto const* const kernel = KernelTable::instance().find(
        {rank.device.kind, Collective::allReduce, "copy_engine", DataType::float32, ReduceOp::sum, 2});
    Team const team(rank.communicator, {.blocks = 1});
    Stream const side(rank.device);
    GpuBuffer<float> const buffer(rank.device, 64);
    std::string text;
    try {
      kernel->start({.stream = rank.stream,
                     .team = team.deviceHandle(),
                     .in = buffer.data(),
                     .out = buffer.data(),
                     .count = 64,
                     .shape = {.blocks = 1, .threads = 32},
                     .sideStreams = &side});
    } catch (Error const& error) {
      text = error.what();
    }
    CHECK_MESSAGE(text.find("has a stage of 0 bytes") != std::string::npos, text);
  });
}
