// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// CCCL's views in kernels of this library: an all-reduce and a norm of what an mdspan shows.
#include "mscclpp/cccl.hpp"

#include <numeric>
#include <vector>

#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/device/barrier.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

using Matrix = cuda::std::mdspan<float, cuda::std::dextents<std::size_t, 2>>;

// y = the sum over ranks of x, then of each row minus its mean.
struct Kernel {
  MSCCLPP_DEVICE void operator()(float* x, float* y, std::size_t rows, std::size_t columns,
                                 DeviceTeam const& team) const {
    cuda::std::span<float> const flat(x, rows * columns);
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), viewOf(flat), viewOf(flat));
    gridBarrier(team, thisGrid());
    Matrix const in(x, rows, columns), out(y, rows, columns);
    AllReduceRows<RowOneShot, PacketTransport<LL16, 2>, Sum>{team}(thisGrid(), matrixOf(in), [&](auto& row) {
      float const mean = row.sum() / static_cast<float>(row.columns());
      row.map([=](float v) { return v - mean; });
      row.store(matrixOf(out));
    });
    gridBarrier(team, thisGrid());
    // A column through a view of strided rows.
    auto const part = mdspanOf(MatrixView{y + 1, rows, columns - 1, columns});
    if (thisGrid().rank() < rows) part(thisGrid().rank(), columns - 2) += 0.5f;
  }
};

}  // namespace

TEST_CASE("views there and back name the same memory") {
  int numbers[12] = {};
  auto const view = viewOf(cuda::std::span<int, 12>(numbers));
  CHECK(view.data == numbers);
  CHECK(view.count == 12);
  CHECK(spanOf(view).data() == numbers);
  CHECK(spanOf(view).size() == 12);
  auto const matrix = matrixOf(cuda::std::mdspan<int, cuda::std::extents<int, 3, 4>>(numbers));
  CHECK(matrix.at(2, 1) == numbers + 9);
  auto const strided = mdspanOf(MatrixView{numbers, 3, 2, 4});
  CHECK(&strided(2, 1) == numbers + 9);
  CHECK(strided.extent(1) == 2);
}

TEST_CASE("a kernel that has spans and mdspans") {
  constexpr int ranks = 2;
  constexpr std::size_t rows = 3, columns = 20;
  if (!canRun(ranks)) return;
  forEachRank(ranks, [&](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 2, .packetBytes = 1 << 14});
    GpuBuffer<float> const x(rank.device, rows * columns), y(rank.device, rows * columns);
    std::vector<float> in(rows * columns);
    std::iota(in.begin(), in.end(), 0.0f);
    copyToDevice(x, std::span<float const>(in));
    rank.meet();
    launch(rank.stream, {.blocks = 2, .threads = 32}, Kernel{}, x.data(), y.data(), rows, columns, team.deviceHandle());
    rank.synchronize();
    auto const out = copyToHost(y);
    for (std::size_t i = 0; i < out.size(); ++i) {
      // Twice as much from each of two ranks, from the middle of the row on.
      auto const expected = 4 * (static_cast<float>(i % columns) - 9.5f) + (i % columns == columns - 1 ? 0.5f : 0.0f);
      CHECK(out[i] == expected);
    }
  });
}
