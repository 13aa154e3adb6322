// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tile flags and slots in whole fused kernels.
#include "explored.hpp"
#include "support/fused.hpp"

using namespace mscclpp_test;

namespace {

FusedCase caseOf(int ranks, bool bulk) {
  return {.shape = {.ranks = ranks,
                    .rows = 9,
                    .inner = 8,
                    .columns = bulk ? 8u : 16u,
                    .tileRows = 2,
                    .tileColumns = bulk ? 8u : 12u,  // the last access of a row is not whole
                    .bulkWrites = bulk,
                    .bulkReads = bulk},
          .rounds = 3};
}

// Nobody waits for what ranks send to rank 0 but in each third round, which they do not wait for either: they may be
// late by a round, and it is gone all the same when the counter is used again.
struct UnawaitedKernel {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags, unsigned tiles, unsigned* wrong) const {
    auto const round = flags.begin(thisGrid());
    if (thisBlock().rank() == 0) {
      auto const arrivals = static_cast<unsigned>(flags.size) - 1;
      if (flags.rank != 0) round.ready(0);
      for (unsigned tile = 0; tile < tiles; ++tile) {
        if (flags.rank != 0) {
          round.arrive(0, tile);
        } else if (round.number() % 3 == 0) {
          round.await(tile, arrivals);
          if (load<Order::relaxed, Scope::system>(flags.counter(0, round.number(), tile)) != arrivals) *wrong = 1;
        }
      }
    }
    thisBlock().sync();
    round.end();
  }
};

}  // namespace

TEST_CASE("fused kernels") {
  for (bool const bulk : {false, true}) {
    everySchedule(2, [=](Rank& rank) { runGatherProduct(rank, caseOf(2, bulk)); });
    everySchedule(3, [=](Rank& rank) { runProductScatter(rank, caseOf(3, bulk)); });
    everySchedule(2, [=](Rank& rank) { runProductSum(rank, caseOf(2, bulk)); });
  }
}

TEST_CASE("arrivals that nobody awaits") {
  sim::World const world{.ranks = 3};
  sim::ExploreOptions const options{.schedules = 30, .findLostSignals = false, .stopAtFirst = true, .shrink = false};
  auto const result = check_test::exploreRanks(
      world,
      [](Rank& rank) {
        TileFlags const flags(rank.communicator, {.tiles = 3, .blocks = 1});
        GpuBuffer<unsigned> const wrong(rank.device, 1);
        for (int i = 0; i < 6; ++i) {
          launch(rank.stream, {.blocks = 1, .threads = 32}, UnawaitedKernel{}, flags.deviceHandle(), 3u, wrong.data());
        }
        rank.synchronize();
        if (copyToHost(wrong)[0] != 0) throw std::runtime_error("a counter did not begin at zero");
      },
      options);
  for (auto const& finding : result.findings) FAIL_CHECK(sim::nameOf(finding.kind), ": ", finding.summary);
}
