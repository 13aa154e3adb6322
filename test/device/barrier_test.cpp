// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Barriers over the grid and over the team hand plain data from every thread to every other.
#include "mscclpp/device/barrier.hpp"

#include <vector>

#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

struct GridKernel {
  MSCCLPP_DEVICE void operator()(unsigned* values, unsigned* wrong, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    for (unsigned round = 1; round <= 5; ++round) {
      values[grid.rank()] = round * 1000 + grid.rank();
      gridBarrier(team, grid);
      auto const other = (grid.rank() + 37 * round) % grid.size();
      if (values[other] != round * 1000 + other) ++wrong[grid.rank()];
      gridBarrier(team, grid);
    }
  }
};

struct Inboxes {
  unsigned* of[4];
};

struct TeamKernel {
  MSCCLPP_DEVICE void operator()(Inboxes inboxes, unsigned* wrong, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    for (unsigned round = 1; round <= 5; ++round) {
      for (int peer = 0; peer < team.size; ++peer) {
        inboxes.of[peer][static_cast<unsigned>(team.rank) * grid.size() + grid.rank()] = round * 10 + grid.blockRank();
      }
      teamBarrier(team, grid);
      for (unsigned source = 0; source < static_cast<unsigned>(team.size); ++source) {
        // What the same block of each rank wrote; another thread of it than this one.
        auto const thread = grid.rank() ^ 1u;
        if (inboxes.of[team.rank][source * grid.size() + thread] != round * 10 + grid.blockRank()) ++wrong[grid.rank()];
      }
      teamBarrier(team, grid);
    }
  }
};

}  // namespace

TEST_CASE("the grid barrier") {
  if (!canRun(1)) return;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    forEachRank(1,
                [](Rank& rank) {
                  Team team(rank.communicator, {.blocks = 6});
                  for (unsigned blocks : {1u, 4u, 6u}) {
                    GpuBuffer<unsigned> values(rank.device, blocks * 64);
                    GpuBuffer<unsigned> wrong(rank.device, blocks * 64);
                    launch(rank.stream, {.blocks = blocks, .threads = 64}, GridKernel{}, values.data(), wrong.data(),
                           team.deviceHandle());
                    rank.synchronize();
                    CHECK(copyToHost(wrong) == std::vector<unsigned>(blocks * 64, 0));
                  }
                },
                {.seed = seed});
  }
}

TEST_CASE("the team barrier") {
  constexpr int ranks = 4;
  if (!canRun(ranks)) return;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    forEachRank(ranks,
                [](Rank& rank) {
                  Team team(rank.communicator, {.blocks = 3});
                  GpuBuffer<unsigned> inbox(rank.device, ranks * 3 * 64);
                  GpuBuffer<unsigned> wrong(rank.device, 3 * 64);
                  auto const all =
                      rank.communicator.exchangeMemory(rank.communicator.registerMemory(inbox.data(), inbox.bytes()));
                  Inboxes inboxes{};
                  for (std::size_t r = 0; r < ranks; ++r) inboxes.of[r] = reinterpret_cast<unsigned*>(all[r].data());
                  rank.meet();
                  launch(rank.stream, {.blocks = 3, .threads = 64}, TeamKernel{}, inboxes, wrong.data(),
                         team.deviceHandle());
                  rank.synchronize();
                  CHECK(copyToHost(wrong) == std::vector<unsigned>(3 * 64, 0));
                },
                {.seed = seed});
  }
}
