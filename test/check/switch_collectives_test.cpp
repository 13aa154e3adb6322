// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sweep over every collective through the switch: whatever the schedule, the shape, the count and the alignment,
// the checker says nothing and the results are right. And what goes wrong where one of their steps is left out.
#include <random>
#include <vector>

#include "check/harness.hpp"
#include "check/sweep.hpp"
#include "support/collective.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

// The least launch that a schedule works with.
struct Least {
  unsigned threads = 32;
  unsigned blocks = 1;
};

CollectiveCase caseOf(int ranks, std::uint64_t variant, Least least) {
  std::mt19937_64 engine(variant * 7919 + 29);
  auto const below = [&](unsigned limit) { return static_cast<unsigned>(engine() % limit); };
  std::size_t const counts[] = {1, 7, 30, 61, 120, 0, 333};
  CollectiveCase test{.ranks = ranks, .counts = {}};
  test.blocks = least.blocks + below(2);
  test.threads = least.threads + (below(3) == 0 ? 16 : 0);
  for (int call = 0; call < 2; ++call) test.counts.push_back(counts[below(7)] + below(3));
  test.inPlace = below(3) == 0;
  test.overlap = below(2) == 0;
  test.offset = below(3) == 0 ? 1 : 0;
  test.regionBytes = 256u * static_cast<unsigned>(ranks);
  test.root = static_cast<int>(below(static_cast<unsigned>(ranks)));
  test.seed = variant;
  return test;
}

template <class Collective, class T = std::uint8_t>
void explored(Least least = {}) {
  for (int ranks : {2, 3, 5, 8}) {
    sweep(ranks, [&](Rank& rank, std::uint64_t variant) {
      checkCollectiveRank<Collective, T>(rank, caseOf(rank.size, variant, least));
    });
  }
}

using Warps = SwitchPipeline<WarpRoles>;
using Blocks = SwitchPipeline<BlockRoles>;

}  // namespace

TEST_CASE("all-reduce by packets to all") {
  explored<AllReduce<OneShot, SwitchPackets<LL8>, Sum>, BFloat16>();
  explored<AllReduce<OneShot, SwitchPackets<LL16>, Sum>, float>();
}

TEST_CASE("all-reduce where the buffers lie") {
  explored<AllReduce<SwitchSchedule, SwitchMemory<2>, Sum>, BFloat16>();
  explored<AllReduce<SwitchSchedule, SwitchMemory<1>, Max>, std::int64_t>();
}

TEST_CASE("all-reduce in a pipeline of warps") {
  explored<AllReduce<Warps, SwitchStage<1>, Sum>, BFloat16>({.threads = 96});
  explored<AllReduce<Warps, SwitchStage<1>, Sum>, double>({.threads = 96});
}

TEST_CASE("all-reduce in a pipeline of blocks") {
  explored<AllReduce<Blocks, SwitchStage<1>, Sum>, BFloat16>({.blocks = 3});
  explored<AllReduce<Blocks, SwitchStage<1>, Min>, std::int32_t>({.blocks = 3});
}

TEST_CASE("reduce-scatter and reduce") {
  explored<ReduceScatter<SwitchSchedule, SwitchMemory<2>, Sum>, BFloat16>();
  explored<Reduce<SwitchSchedule, SwitchMemory<2>, Sum>, float>();
}

TEST_CASE("all-gather and broadcast") {
  explored<AllGather<SwitchSchedule, SwitchMemory<2>>>();
  explored<Broadcast<SwitchSchedule, SwitchMemory<2>>>();
  explored<AllGather<OneExchange, SwitchPackets<LL8>>>();
  explored<Broadcast<OneExchange, SwitchPackets<LL16>>>();
}

TEST_CASE("16 ranks") {
  auto const once = [](auto&& body) { sweep(16, body); };
  once([](Rank& rank, std::uint64_t variant) {
    checkCollectiveRank<AllReduce<SwitchSchedule, SwitchMemory<2>, Sum>, BFloat16>(rank, caseOf(16, variant, {}));
  });
  once([](Rank& rank, std::uint64_t variant) {
    checkCollectiveRank<AllReduce<Warps, SwitchStage<1>, Sum>, BFloat16>(rank, caseOf(16, variant, {.threads = 96}));
  });
}
