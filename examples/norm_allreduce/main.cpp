// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a tensor-parallel transformer does between two layers, in one kernel: all ranks' partial results are summed, the
// residual is added, the sum is kept as the next residual and normalised by its root mean square, and what the next
// layer reads goes out as FP8 with a scale for each 128 columns. Decode steps of a few tokens take RowOneShot; with
// many, RowTwoShot does each row once, on one rank, and sends it on at a byte an element.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

namespace {

constexpr unsigned quantisedColumns = 128;

// ---- the kernel -----------------------------------------------------------------------------------------------------

template <class Schedule>
struct AddNorm {
  using Rows = AllReduceRows<Schedule, PacketTransport<LL128, 2>, Sum>;
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(MatrixView<bf16 const> const& x, MatrixView<bf16> const& residual,
                                 View<bf16 const> const& gamma, DeviceTeam const& team,
                                 layout::WindowHandle const& values, layout::WindowHandle const& factors) const {
    SymmetricMatrix<Float8E4M3> const y(values, 0, x.rows, x.columns);
    SymmetricMatrix<float> const scale(factors, 0, x.rows, x.columns / quantisedColumns);
    auto const addNorm = [&](auto& row, auto const& r, auto const& g) {
      row.map([](float v, float old) { return v + old; }, r);
      float const mean = row.sum([](float v) { return v * v; }) / static_cast<float>(x.columns);
      row.store(residual);
      float const norm = 1 / std::sqrt(mean + 1e-6f);
      row.map([=](float v, float weight) { return v * norm * weight; }, g);
      row.template quantise<quantisedColumns>(y, scale);
    };
    Rows{team}(thisGrid(), x, addNorm, residual, gamma);
  }
};

// ---- its use --------------------------------------------------------------------------------------------------------

float element(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 11) - 5;
}

template <class Schedule>
void runSchedule(Communicator& communicator, char const* name, std::size_t tokens, std::size_t hidden) {
  using Rows = typename AddNorm<Schedule>::Rows;
  auto const device = communicator.device();
  auto const ranks = static_cast<std::size_t>(communicator.size());
  std::vector<bf16> x(tokens * hidden), old(tokens * hidden), weight(hidden);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = bf16(element(communicator.rank(), i));
  for (std::size_t i = 0; i < old.size(); ++i) old[i] = bf16(static_cast<float>(i % 5));
  for (std::size_t c = 0; c < hidden; ++c) weight[c] = bf16(c % 2 == 0 ? 0.5f : 1.0f);
  GpuBuffer<bf16> const xOnDevice(device, x.size()), residual(device, old.size()), gamma(device, hidden);
  GpuBuffer<Float8E4M3> const y(device, x.size());
  GpuBuffer<float> const scale(device, tokens * hidden / quantisedColumns);
  copyToDevice(xOnDevice, std::span<bf16 const>(x));
  copyToDevice(residual, std::span<bf16 const>(old));
  copyToDevice(gamma, std::span<bf16 const>(weight));

  auto const most = Schedule::sameToAll ? tokens : (tokens + ranks - 1) / ranks;  // rows that a rank makes
  auto const shape = Rows::template shape<bf16>(most, hidden, /*maxBlocks=*/8);
  Team const team(communicator, Rows::requirement(static_cast<std::uint32_t>(ranks), shape.blocks, shape.threads));
  MemoryWindow const values(communicator, y.data(), y.bytes());
  MemoryWindow const factors(communicator, scale.data(), scale.bytes());
  Stream const stream(device);
  launch(stream, shape, AddNorm<Schedule>{}, MatrixView<bf16 const>{xOnDevice.data(), tokens, hidden},
         MatrixView{residual.data(), tokens, hidden}, View<bf16 const>{gamma.data(), hidden}, team.deviceHandle(),
         values.deviceHandle(), factors.deviceHandle());
  communicator.synchronize(stream);

  auto const result = copyToHost(y);
  auto const scales = copyToHost(scale);
  float worst = 0;
  for (std::size_t token = 0; token < tokens; ++token) {
    std::vector<float> expected(hidden);
    float squares = 0;
    for (std::size_t c = 0; c < hidden; ++c) {
      auto const i = token * hidden + c;
      expected[c] = static_cast<float>(old[i]);
      for (int rank = 0; rank < communicator.size(); ++rank) expected[c] += element(rank, i);
      squares += expected[c] * expected[c];
    }
    float const norm = 1 / std::sqrt(squares / static_cast<float>(hidden) + 1e-6f);
    for (std::size_t c = 0; c < hidden; ++c) {
      auto const i = token * hidden + c;
      auto const found = static_cast<float>(result[i]) * scales[i / quantisedColumns];
      auto const largest = 448 * scales[i / quantisedColumns];
      worst = std::max(worst, std::abs(found - expected[c] * norm * static_cast<float>(weight[c])) / largest);
    }
  }
  // Half a step between FP8's largest numbers, 16 of 448, and float's own rounding.
  if (!(worst <= 16.1f / 448)) {
    throw Error(ErrorCode::internalError, std::string(name) + ": rank " + std::to_string(communicator.rank()) +
                                              " is off by " + std::to_string(worst) + " of the largest value");
  }
  if (communicator.rank() == 0) {
    std::printf("%s: %zu tokens of %zu on %zu ranks, %u blocks of %u threads: right\n", name, tokens, hidden, ranks,
                shape.blocks, shape.threads);
  }
  communicator.bootstrap()->barrier();
}

void runRank(Communicator& communicator) {
  runSchedule<RowOneShot>(communicator, "one shot", 3, 1024);
  runSchedule<RowTwoShot>(communicator, "two shots", 13, 1024);
}

}  // namespace

int main() {
  try {
    runRanks(kernelDevice, std::min(4, Device::count(kernelDevice)), runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
