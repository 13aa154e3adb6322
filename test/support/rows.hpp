// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A transformer's residual, norm and quantisation in the epilogue of AllReduceRows, on every rank, and the same on the
// host. The numbers are such that all sums are exact, so their order does not matter.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

namespace mscclpp_test {

struct RowsCase {
  int ranks = 2;
  std::size_t rows = 4;
  std::size_t columns = 64;
  std::size_t stride = 0;  // 0: the columns
  unsigned blocks = 3;     // at most
  int calls = 1;
  bool overlap = false;
};

inline constexpr unsigned quantisedBlock = 32;
inline constexpr float normEpsilon = 1e-6f;

inline namespace MSCCLPP_BACKEND {

// residual += sum over ranks of x; y = residual normalised * gamma + bias; q, s = y quantised by blocks; w, t by rows.
template <class Schedule, class Tr, class G, class T>
struct NormKernel {
  MSCCLPP_DEVICE void operator()(T const* x, std::size_t stride, T* residual, T const* gamma, float const* bias,
                                 std::size_t rows, std::size_t columns, std::uint32_t* calls, DeviceTeam const& team,
                                 layout::WindowHandle const& yw, layout::WindowHandle const& qw,
                                 layout::WindowHandle const& sw) const {
    auto const blocks = (columns + quantisedBlock - 1) / quantisedBlock;
    SymmetricMatrix<float> const y(yw, 0, rows, columns);
    SymmetricMatrix<Float8E4M3> const q(qw, 0, rows, columns);
    SymmetricMatrix<std::int8_t> const w(qw, rows * columns, rows, columns);
    SymmetricMatrix<float> const s(sw, 0, rows, blocks);
    SymmetricMatrix<float> const t(sw, rows * blocks * sizeof(float), rows, 1);
    MatrixView const kept{residual, rows, columns};
    AllReduceRows<Schedule, Tr, Sum, 0, G>{team}(
        thisGrid(), MatrixView{x, rows, columns, stride},
        [&](auto& row, auto const& r, auto const& g) {
          if (calls != nullptr) fetchAdd<Order::relaxed, Scope::device>(calls, 1u);
          row.map([](float v, float a) { return v + a; }, r);
          row.store(kept);
          float const scale =
              1 / std::sqrt(row.sum([](float v) { return v * v; }) / static_cast<float>(row.columns()) + normEpsilon);
          row.map([=](float v, float a) { return v * scale * a; }, g);
          row.map([](float v, float b, std::uint32_t column) { return column % 2 == 0 ? v : v + b; },
                  View{bias, columns});
          row.store(y);
          row.template quantise<quantisedBlock>(q, s);
          row.quantise(w, t);
        },
        kept, View{gamma, columns});
  }
};

}  // namespace MSCCLPP_BACKEND

template <class T>
T rowElement(int rank, int call, std::size_t row, std::size_t column) {
  auto const mixed = row * 31 + column * 7 + static_cast<std::size_t>(rank) * 13 + static_cast<std::size_t>(call) * 5;
  return convertNumber<T>(static_cast<float>(mixed % 17) - 8);
}

template <class Schedule, class Tr, class G, class T>
void checkRowsRank(Rank& rank, RowsCase const& test) {
  using Kernel = AllReduceRows<Schedule, Tr, Sum, 0, G>;
  auto const ranks = static_cast<std::size_t>(test.ranks);
  auto const stride = test.stride != 0 ? test.stride : test.columns;
  auto const elements = test.rows * test.columns;
  auto const blocks = (test.columns + quantisedBlock - 1) / quantisedBlock;
  bool const everyRow = Schedule::sameToAll;
  auto const each = (test.rows + ranks - 1) / ranks;
  auto shape = Kernel::template shape<T>(everyRow ? test.rows : each, test.columns, test.blocks);
  shape.overlapPrevious = test.overlap;

  Team const team(rank.communicator,
                  Kernel::requirement(static_cast<std::uint32_t>(ranks), shape.blocks, shape.threads));
  GpuBuffer<T> const x(rank.device, test.rows * stride);
  GpuBuffer<T> const residual(rank.device, elements);
  GpuBuffer<T> const gamma(rank.device, test.columns);
  GpuBuffer<float> const bias(rank.device, test.columns);
  GpuBuffer<std::uint32_t> const calls(rank.device, 1);
  GpuBuffer<float> const y(rank.device, elements);
  GpuBuffer<std::byte> const q(rank.device, 2 * elements);
  GpuBuffer<float> const scales(rank.device, test.rows * (blocks + 1));
  MemoryWindow const yw(rank.communicator, y.data(), y.bytes());
  MemoryWindow const qw(rank.communicator, q.data(), q.bytes());
  MemoryWindow const sw(rank.communicator, scales.data(), scales.bytes());

  std::vector<T> kept(elements), g(test.columns);
  std::vector<float> b(test.columns);
  for (std::size_t c = 0; c < test.columns; ++c) {
    g[c] = convertNumber<T>(static_cast<float>(c % 5) - 1.5f);
    b[c] = static_cast<float>(c % 3);
  }
  for (std::size_t i = 0; i < elements; ++i) kept[i] = convertNumber<T>(static_cast<float>(i % 9) - 4);
  copyToDevice(residual, std::span<T const>(kept));
  copyToDevice(gamma, std::span<T const>(g));
  copyToDevice(bias, std::span<float const>(b));
  auto keptHere = kept;
  calls.fill(0);

  for (int call = 0; call < test.calls; ++call) {
    std::vector<T> mine(test.rows * stride);
    for (std::size_t r = 0; r < test.rows; ++r) {
      for (std::size_t c = 0; c < test.columns; ++c) mine[r * stride + c] = rowElement<T>(rank.rank, call, r, c);
    }
    copyToDevice(x, std::span<T const>(mine));
    y.fill(0x5a);
    rank.meet();
    launch(rank.stream, shape, NormKernel<Schedule, Tr, G, T>{}, x.data(), stride, residual.data(), gamma.data(),
           bias.data(), test.rows, test.columns, call == 0 ? calls.data() : nullptr, team.deviceHandle(),
           yw.deviceHandle(), qw.deviceHandle(), sw.deviceHandle());
    rank.synchronize();

    std::vector<float> expectedY(elements), expectedScales(test.rows * (blocks + 1));
    std::vector<std::byte> expectedQ(2 * elements);
    for (std::size_t r = 0; r < test.rows; ++r) {
      auto* const line = expectedY.data() + r * test.columns;
      float squares = 0;
      for (std::size_t c = 0; c < test.columns; ++c) {
        float total = convertNumber<float>(kept[r * test.columns + c]);
        for (int p = 0; p < test.ranks; ++p) total += convertNumber<float>(rowElement<T>(p, call, r, c));
        squares += total * total;
        line[c] = total;
        kept[r * test.columns + c] = convertNumber<T>(total);
      }
      if (everyRow || r / each == static_cast<std::size_t>(rank.rank)) {  // with two shots only who makes the row
        std::copy_n(kept.begin() + static_cast<std::ptrdiff_t>(r * test.columns), test.columns,
                    keptHere.begin() + static_cast<std::ptrdiff_t>(r * test.columns));
      }
      float const scale = 1 / std::sqrt(squares / static_cast<float>(test.columns) + normEpsilon);
      for (std::size_t c = 0; c < test.columns; ++c) {
        line[c] = line[c] * scale * convertNumber<float>(g[c]);
        if (c % 2 != 0) line[c] += b[c];
      }
      auto const most = [&](std::size_t from, std::size_t to) {
        float result = 0;
        for (auto c = from; c < std::min(to, test.columns); ++c) result = std::max(result, std::abs(line[c]));
        return result;
      };
      auto const whole = most(0, test.columns);
      expectedScales[test.rows * blocks + r] = whole / 127;
      for (std::size_t block = 0; block < blocks; ++block) {
        expectedScales[r * blocks + block] = most(block * quantisedBlock, (block + 1) * quantisedBlock) / 448;
      }
      for (std::size_t c = 0; c < test.columns; ++c) {
        auto const first = c / quantisedBlock * quantisedBlock;
        auto const there = most(first, first + quantisedBlock);
        auto const small = quantised<Float8E4M3>(line[c] * (there == 0 ? 0 : 448 / there));
        auto const byte = static_cast<std::int8_t>(std::nearbyint(line[c] * (whole == 0 ? 0 : 127 / whole)));
        expectedQ[r * test.columns + c] = std::byte{small.bits};
        expectedQ[elements + r * test.columns + c] = static_cast<std::byte>(byte);
      }
    }
    CHECK_MESSAGE(countDifferent(copyToHost(y), expectedY) == 0, "y of rank ", rank.rank);
    CHECK_MESSAGE(countDifferent(copyToHost(q), expectedQ) == 0, "quantised, rank ", rank.rank);
    CHECK_MESSAGE(countDifferent(copyToHost(scales), expectedScales) == 0, "scales of rank ", rank.rank);
    CHECK_MESSAGE(countDifferent(copyToHost(residual), keptHere) == 0, "residual of rank ", rank.rank);
  }
}

template <class Schedule, class Tr, class G, class T>
void checkRows(RowsCase const& test) {
  if (!canRun(test.ranks)) return;
  forEachRank(test.ranks, [&](Rank& rank) { checkRowsRank<Schedule, Tr, G, T>(rank, test); });
}

}  // namespace mscclpp_test
