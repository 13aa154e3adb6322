// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce of rows with a norm behind it: nothing to find, whatever the schedule, and two mistakes of its callers.
#include <doctest/doctest.h>

#include <random>

#include "check/harness.hpp"
#include "check/sweep.hpp"
#include "support/rows.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

RowsCase caseOf(int ranks, std::uint64_t variant) {
  std::mt19937_64 engine(variant * 6151 + 7);
  auto const below = [&](unsigned limit) { return static_cast<unsigned>(engine() % limit); };
  return {.ranks = ranks,
          .rows = 1 + below(5),
          .columns = 1 + below(200),
          .blocks = 1 + below(3),
          .calls = 2,
          .overlap = below(2) == 0};
}

// A layer adds to the residual; the norm's kernel is launched to begin before that one has ended.
struct Layer {
  MSCCLPP_DEVICE void operator()(float* residual, std::size_t count) const {
    allowNextKernel();
    auto const grid = thisGrid();
    for (std::size_t i = grid.rank(); i < count; i += grid.size()) residual[i] += 1;  // <- layer
  }
};

template <Fault F>
struct Norm {
  MSCCLPP_DEVICE void operator()(float const* x, float* residual, float* y, std::size_t rows, std::size_t columns,
                                 DeviceTeam const& team) const {
    MatrixView const kept{residual, rows, columns};
    float early = 0;
    if constexpr (planted<F>) early = residual[thisBlock().rank()];  // <- early
    AllReduceRows<RowOneShot, PacketTransport<LL16>, Sum>{team}(
        thisGrid(), MatrixView{x, rows, columns},
        [&](auto& row, auto const& r) {
          row.map([=](float v, float a) { return v + a + early * 0; }, r);
          row.store(kept);
          row.store(MatrixView{y, rows, columns});
        },
        kept);
  }
};

template <Fault F>
struct ResidualBehindItsLayer {
  void operator()(Rank& rank) const {
    constexpr std::size_t rows = 2, columns = 64;
    Team const team(rank.communicator, {.blocks = 2, .packetBytes = 8192});
    GpuBuffer<float> const x(rank.device, rows * columns), residual(rank.device, rows * columns),
        y(rank.device, rows * columns);
    residual.fill(0);
    x.fill(0);
    rank.meet();
    launch(rank.stream, {.blocks = 1, .threads = 32}, Layer{}, residual.data(), rows * columns);
    launch(rank.stream, {.blocks = 2, .threads = 32, .overlapPrevious = true}, Norm<F>{}, x.data(), residual.data(),
           y.data(), rows, columns, team.deviceHandle());
    rank.synchronize();
    expectOnHost(copyToHost(y)[0] == 1, "a wrong sum");
  }
};

// A second step of the same kernel reads what other blocks have normalised.
template <Fault F>
struct RowsOfOtherBlocks {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, float* z, std::size_t rows, std::size_t columns,
                                 DeviceTeam const& team) const {
    auto const grid = thisGrid();
    auto const store = [&](auto& row) {
      row.store(MatrixView{y, rows, columns});  // <- store
    };
    AllReduceRows<RowOneShot, PacketTransport<LL16>, Sum>{team}(grid, MatrixView{x, rows, columns}, store);
    if constexpr (!planted<F>) gridBarrier(team, grid);
    auto const other = (grid.blockRank() + 1) % grid.blockCount();
    z[grid.rank()] = y[other * columns + thisBlock().rank()];  // <- load
  }
};

template <Fault F>
struct ReadsOtherBlocks {
  void operator()(Rank& rank) const {
    constexpr std::size_t rows = 2, columns = 64;
    Team const team(rank.communicator, {.blocks = 2, .packetBytes = 8192});
    GpuBuffer<float> const x(rank.device, rows * columns), y(rank.device, rows * columns), z(rank.device, 64);
    x.fill(0);
    rank.meet();
    launch(rank.stream, {.blocks = 2, .threads = 32}, RowsOfOtherBlocks<F>{}, x.data(), y.data(), z.data(), rows,
           columns, team.deviceHandle());
    rank.synchronize();
  }
};

}  // namespace

TEST_CASE_TEMPLATE("rows by blocks", Tr, PacketTransport<LL16, 2>, PacketTransport<LL128, 2>, MemoryTransport<2>) {
  for (int ranks : {2, 3, 8}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      checkRowsRank<RowOneShot, Tr, BlockPerRow, BFloat16>(rank, caseOf(ranks, variant));
    });
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      checkRowsRank<RowTwoShot, Tr, BlockPerRow, BFloat16>(rank, caseOf(ranks, variant));
    });
  }
}

TEST_CASE("rows by warps and by clusters") {
  for (int ranks : {2, 4}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      checkRowsRank<RowTwoShot, PacketTransport<LL128, 2>, WarpsPerRow<2>, BFloat16>(rank, caseOf(ranks, variant));
    });
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      auto test = caseOf(ranks, variant);
      test.columns += 600;  // two blocks a row, and more
      test.blocks = 4;
      checkRowsRank<RowOneShot, PacketTransport<LL16, 1>, ClusterPerRow, BFloat16>(rank, test);
    });
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      auto test = caseOf(ranks, variant);
      test.columns += 1500;  // sums change threads, of two stretches a block
      test.blocks = 4;
      checkRowsRank<RowOneShot, PacketTransport<LL128, 2>, ClusterPerRow, BFloat16>(rank, test);
    });
  }
}

TEST_CASE("the residual is read before the layer that adds to it has ended") {
  checkProgram<ResidualBehindItsLayer>({FindingKind::race, {"layer", "early"}});
}

TEST_CASE("rows that other blocks have stored are read without a meeting") {
  checkProgram<ReadsOtherBlocks>({FindingKind::race, {"store", "load"}});
}
