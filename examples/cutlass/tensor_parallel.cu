// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The products of products.hpp on four ranks, compared with sums on the host. Built where CMake is told
// MSCCLPP_CUTLASS, a folder with CUTLASS's headers. On fewer GPUs ranks share them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "products.hpp"

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"

using namespace mscclpp;

namespace {

constexpr int ranks = 4;

// ---- their use ------------------------------------------------------------------------------------------------------

// Small whole numbers, so that products are exact.
bf16 number(int rank, int row, int column) {
  auto const mixed = (row * 2654435761u ^ column * 2246822519u) + rank * 3266489917u;
  return bf16(static_cast<float>((mixed >> 16) % 3) - 1);
}

std::vector<bf16> matrix(int rank, int rows, int columns) {
  std::vector<bf16> values(std::size_t(rows) * columns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) values[std::size_t(i) * columns + j] = number(rank, i, j);
  }
  return values;
}

// Some elements of each row; `expected(row, column)` is the sum before it is rounded.
template <class Expected>
void check(char const* what, int rank, std::vector<bf16> const& found, int rows, int columns, float tolerance,
           Expected const& expected) {
  for (int i = 0; i < rows; ++i) {
    for (int j = i % 61; j < columns; j += 61) {
      auto const wanted = expected(i, j);
      auto const is = static_cast<float>(found[std::size_t(i) * columns + j]);
      if (std::abs(is - wanted) <= tolerance * std::max(1.0f, std::abs(wanted))) continue;
      throw Error(ErrorCode::internalError, std::string(what) + ": rank " + std::to_string(rank) + " has " +
                                                std::to_string(is) + " at " + std::to_string(i) + ", " +
                                                std::to_string(j) + ", not " + std::to_string(wanted));
    }
  }
}

void runRank(Communicator& communicator) {
  constexpr int m = 2048, n = 1024, k = 512, share = m / ranks;
  constexpr auto tiles = cutlass_products::tileGrid(m, n, ranks);
  auto const device = communicator.device();
  auto const rank = communicator.rank();
  int const sharing = communicator.ranksPerDevice();
  TileFlags const flags(communicator, {.tiles = tiles.count(), .blocks = 264});
  Stream const stream(device), beside(device);
  auto const toDevice = [&](std::vector<bf16> const& values) {
    GpuBuffer<bf16> buffer(device, values.size());
    copyToDevice(buffer, std::span<bf16 const>(values));
    return buffer;
  };
  auto const row = [&](int source, int i, int wRank, int j) {
    float sum = 0;
    for (int c = 0; c < k; ++c) {
      sum += static_cast<float>(number(source, i, c)) * static_cast<float>(number(wRank + 7, j, c));
    }
    return sum;
  };
  auto const w = toDevice(matrix(rank + 7, n, k));

  auto const own = toDevice(matrix(rank, share, k));
  GpuBuffer<bf16> const all(device, std::size_t{m} * k), product(device, std::size_t{m} * n);
  MemoryWindow const gathered(communicator, all.data(), all.bytes());
  for (int round = 0; round < 3; ++round) {
    cutlass_products::gatherProduct(sharing, own.data(), w.data(), product.data(), {m, n, k, 1}, gathered, flags,
                                    all.data(), stream, beside);
  }
  communicator.synchronize(stream);
  check("all-gather, product", rank, copyToHost(product), m, n, 1.0f / 256,
        [&](int i, int j) { return row(i / share, i % share, rank, j); });

  auto const x = toDevice(matrix(rank, m, k));
  GpuBuffer<bf16> const parts(device, std::size_t{m} * n), sums(device, std::size_t{share} * n);
  MemoryWindow const slots(communicator, parts.data(), parts.bytes());
  for (int round = 0; round < 3; ++round) {
    cutlass_products::productScatter<ranks>(sharing, x.data(), w.data(), sums.data(), {m, n, k, 1}, slots, flags,
                                            stream);
  }
  communicator.synchronize(stream);
  check("product, reduce-scatter", rank, copyToHost(sums), share, n, 1.0f / 256, [&](int i, int j) {
    float sum = 0;
    for (int source = 0; source < ranks; ++source) sum += row(source, rank * share + i, source, j);
    return sum;
  });
  if (rank == 0) std::printf("all-gather and product, product and reduce-scatter on %d ranks: right\n", ranks);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main() {
  try {
    runRanks(devicesInTurn(kernelDevice, ranks), runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
