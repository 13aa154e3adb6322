// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Barriers of the grid and of the team, in the smallest programs that need each of their orders, scopes and barriers.
#include "mscclpp/device/barrier.hpp"

#include <vector>

#include "explored.hpp"

using namespace mscclpp_test;

namespace {

// Each thread reads what a thread of another block wrote, and the next round overwrites it.
struct GridKernel {
  MSCCLPP_DEVICE void operator()(unsigned* values, unsigned* wrong, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    for (unsigned round = 1; round <= 3; ++round) {
      values[grid.rank()] = round * 1000 + grid.rank();
      gridBarrier(team, grid);
      auto const other = (grid.rank() + thisBlock().size() + round) % grid.size();
      if (values[other] != round * 1000 + other) ++wrong[grid.rank()];
      gridBarrier(team, grid);
    }
  }
};

struct Inboxes {
  unsigned* of[4];
};

// Each thread reads what another thread of the same block of each rank wrote.
struct TeamKernel {
  MSCCLPP_DEVICE void operator()(Inboxes inboxes, unsigned* wrong, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    auto const block = thisBlock();
    auto const base = grid.blockRank() * block.size();
    for (unsigned round = 1; round <= 3; ++round) {
      for (int peer = 0; peer < team.size; ++peer) {
        inboxes.of[peer][static_cast<unsigned>(team.rank) * grid.size() + grid.rank()] = round * 100 + grid.rank();
      }
      teamBarrier(team, grid);
      auto const other = base + (block.rank() + round) % block.size();
      for (unsigned source = 0; source < static_cast<unsigned>(team.size); ++source) {
        if (inboxes.of[team.rank][source * grid.size() + other] != round * 100 + other) ++wrong[grid.rank()];
      }
      teamBarrier(team, grid);
      gridBarrier(team, grid);
    }
  }
};

}  // namespace

TEST_CASE("grid barrier") {
  everySchedule(1, [](Rank& rank) {
    Team team(rank.communicator, {.blocks = 4});
    for (unsigned blocks : {3u, 1u}) {
      for (unsigned threads : {2u, 40u}) {
        GpuBuffer<unsigned> values(rank.device, blocks * threads);
        GpuBuffer<unsigned> wrong(rank.device, blocks * threads);
        launch(rank.stream, {.blocks = blocks, .threads = threads}, GridKernel{}, values.data(), wrong.data(),
               team.deviceHandle());
        rank.synchronize();
        CHECK(copyToHost(wrong) == std::vector<unsigned>(blocks * threads, 0));
      }
    }
  });
}

TEST_CASE("team barrier") {
  everySchedule(3, [](Rank& rank) {
    Team team(rank.communicator, {.blocks = 16});  // the words of the grid's barrier follow those of the epochs at once
    // Fewer threads than ranks; grids that grow and shrink.
    for (unsigned blocks : {1u, 3u, 2u}) {
      for (unsigned threads : {2u, 33u}) {
        GpuBuffer<unsigned> inbox(rank.device, 3 * blocks * threads);
        GpuBuffer<unsigned> wrong(rank.device, blocks * threads);
        auto const all =
            rank.communicator.exchangeMemory(rank.communicator.registerMemory(inbox.data(), inbox.bytes()));
        Inboxes inboxes{};
        for (std::size_t r = 0; r < 3; ++r) inboxes.of[r] = reinterpret_cast<unsigned*>(all[r].data());
        launch(rank.stream, {.blocks = blocks, .threads = threads}, TeamKernel{}, inboxes, wrong.data(),
               team.deviceHandle());
        rank.synchronize();
        CHECK(copyToHost(wrong) == std::vector<unsigned>(blocks * threads, 0));
      }
    }
  });
}
