// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Views of matrices, and slots whose sums do not depend on their alignment.
#include <cstring>
#include <string>
#include <vector>

#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

constexpr float numbers[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
constexpr MatrixView<float const> wide{numbers, 3, 2, 4};
static_assert(*wide.at(2, 1) == 9 && wide.row(1).data == numbers + 4 && wide.row(1).count == 2);
constexpr auto part = MatrixView<float const>{numbers, 3, 4}.part(1, 2, 2, 2);
static_assert(*part.at(0, 0) == 6 && *part.at(1, 1) == 11 && part.rows == 2 && part.columns == 2 && part.stride == 4);

// Tells who came first, and how many there were.
struct Halving {
  MSCCLPP_HOST_DEVICE constexpr float operator()(float a, float b) const { return a * 0.5f + b; }
  MSCCLPP_HOST_DEVICE constexpr float finish(float total, int count) const {
    return total + static_cast<float>(count) * 1024;
  }
};

// Of an element: (what Op makes of the parts) * 2 + row * 100 + column.
template <class Op, class T, class Out>
struct FoldKernel {
  MSCCLPP_DEVICE void operator()(T const* parts, Out* out, std::size_t stride, TileGrid const& grid,
                                 std::uint64_t offset, layout::WindowHandle const& window, layout::Watch* watch) const {
    Slots<T> const slots(window, offset, grid);
    slots.check(watch);
    auto const block = thisBlock();
    // All sources' parts of the own rows, as if their ranks had written them.
    for (int source = 0; source < grid.ranks; ++source) {
      auto const slot = slots.of(window.rank, source);
      for (unsigned i = block.rank(); i < slot.rows * slot.columns; i += block.size()) {
        *slot.at(i / slot.columns, i % slot.columns) =
            parts[static_cast<unsigned>(source) * grid.shardRows() * grid.columns + i];
      }
    }
    block.sync();
    MatrixView const result{out, grid.rowsOf(window.rank), grid.columns, stride};
    for (auto const& tile : tilesOf<OwnOnly<>>(grid, window.rank, block)) {
      foldSlots<Op>(block, slots, tile, result.part(tile.shardRow, tile.column, tile.rows, tile.columns),
                    [](auto values, TilePlace const& at) {
                      if (at.count > values.size) arch::trap("more values than there are");
                      for (unsigned k = 0; k < at.count; ++k) {
                        values[k] = values[k] * 2 + static_cast<float>(at.row * 100 + at.column + k);
                      }
                      return values;
                    });
    }
  }
};

// Each rank marks its rows in everybody's matrix.
struct MarkKernel {
  MSCCLPP_DEVICE void operator()(layout::WindowHandle const& window, std::uint64_t offset, unsigned rows,
                                 unsigned columns, layout::Watch* watch) const {
    SymmetricMatrix<int> const matrix(window, offset, rows, columns);
    matrix.check(watch, window.size);
    auto const me = static_cast<unsigned>(window.rank);
    for (int rank = 0; rank < window.size; ++rank) {
      auto const row = matrix.of(rank).row(me);
      for (unsigned i = thisBlock().rank(); i < columns; i += thisBlock().size())
        row.data[i] = window.rank * 100 + rank;
    }
  }
};

template <class T, class Out, class Op = Sum>
void checkFold(Rank const& rank, TileGrid const& grid, std::size_t skew, std::size_t gap) {
  auto const slot = std::size_t{grid.shardRows()} * grid.columns;
  auto const ranks = static_cast<std::size_t>(grid.ranks);
  auto const parts = randomInput<T>(skew * 10 + gap, rank.rank, slot * ranks);
  GpuBuffer<T> const given(rank.device, parts.size()), memory(rank.device, parts.size() + skew);
  copyToDevice(given, std::span<T const>(parts));
  MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
  auto const stride = grid.columns + gap;
  GpuBuffer<Out> out(rank.device, stride * grid.shardRows() + skew);
  out.fill(0);
  launch(rank.stream, {.blocks = 1, .threads = 64}, FoldKernel<Op, T, Out>{}, static_cast<T const*>(given.data()),
         out.data() + skew, stride, grid, std::uint64_t{skew * sizeof(T)}, window.deviceHandle(),
         rank.communicator.watch());
  rank.synchronize();
  std::vector<std::vector<T>> sources;
  for (std::size_t s = 0; s < ranks; ++s) {
    auto const first = parts.begin() + static_cast<std::ptrdiff_t>(s * slot);
    sources.emplace_back(first, first + static_cast<std::ptrdiff_t>(slot));
  }
  auto const sums = reduceInRankOrder<float, Op>(sources);
  std::vector<Out> expected(out.size(), Out{});
  for (std::size_t row = 0; row < grid.rowsOf(rank.rank); ++row) {
    for (std::size_t column = 0; column < grid.columns; ++column) {
      auto const place = static_cast<float>((grid.firstRow(rank.rank) + row) * 100 + column);
      expected[skew + row * stride + column] = convertNumber<Out>(sums[row * grid.columns + column] * 2 + place);
    }
  }
  CHECK(countDifferent(copyToHost(out), expected) == 0);
}

std::string refusal(Rank const& rank) {
  try {
    rank.communicator.synchronize(rank.stream);
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("slots are added up in rank order, by any accesses") {
  if (!canRun(2)) return;
  for (std::uint32_t const columns : {1u, 7u, 8u, 24u}) {
    for (std::size_t const skew : {0u, 1u, 8u}) {
      CAPTURE(columns);
      CAPTURE(skew);
      forEachRank(2, [&](Rank& rank) {
        TileGrid const grid{.rows = 9, .columns = columns, .tileRows = 2, .tileColumns = 16, .ranks = 2};
        checkFold<bf16, bf16>(rank, grid, skew, 0);
        checkFold<bf16, float>(rank, grid, skew, 3);
        checkFold<float, bf16>(rank, grid, skew, 8);
        checkFold<Float8E4M3, float>(rank, grid, skew, 0);
        checkFold<float, Float8E5M2>(rank, grid, skew, 0);
        checkFold<float, float, Halving>(rank, grid, skew, 0);
      });
    }
  }
}

TEST_CASE("more ranks than are loaded at once") {
  if (!canRun(6)) return;
  forEachRank(6, [](Rank& rank) {
    checkFold<bf16, float>(rank, {.rows = 13, .columns = 16, .tileRows = 2, .tileColumns = 8, .ranks = 6}, 0, 0);
  });
}

TEST_CASE("a matrix lies at the same place on every rank") {
  if (!canRun(3)) return;
  forEachRank(3, [](Rank& rank) {
    constexpr unsigned rows = 3, columns = 5;
    GpuBuffer<int> const memory(rank.device, rows * columns + 2);
    MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
    rank.meet();
    launch(rank.stream, {.blocks = 1, .threads = 32}, MarkKernel{}, window.deviceHandle(), std::uint64_t{8}, rows,
           columns, rank.communicator.watch());
    rank.synchronize();
    auto const found = copyToHost(memory);
    for (unsigned i = 0; i < rows * columns; ++i) {
      CHECK(found[i + 2] == static_cast<int>(i / columns) * 100 + rank.rank);
    }
  });
}

TEST_CASE("matrices and slots past the end of their window are refused") {
  if (!canRun(1)) return;
  forEachRank(1, [](Rank& rank) {
    GpuBuffer<float> const memory(rank.device, 16);
    MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
    launch(rank.stream, {.blocks = 1, .threads = 1}, MarkKernel{}, window.deviceHandle(), std::uint64_t{4}, 4u, 4u,
           rank.communicator.watch());
    CHECK(refusal(rank).find("a view up to byte 68 of a symmetric window of 64") != std::string::npos);
  });
  forEachRank(1, [](Rank& rank) {
    GpuBuffer<float> const memory(rank.device, 16), out(rank.device, 24);
    MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
    TileGrid const grid{.rows = 3, .columns = 8, .tileRows = 2, .tileColumns = 8, .ranks = 1};
    launch(rank.stream, {.blocks = 1, .threads = 1}, FoldKernel<Sum, float, float>{},
           static_cast<float const*>(memory.data()), out.data(), std::size_t{8}, grid, std::uint64_t{0},
           window.deviceHandle(), rank.communicator.watch());
    CHECK(refusal(rank).find("a view up to byte 96 of a symmetric window of 64") != std::string::npos);
  });
}
