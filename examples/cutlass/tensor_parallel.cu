// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two products of a tensor-parallel layer, by CUTLASS's kernels for Hopper and the parts of mscclpp/cutlass.hpp, a
// GPU a rank:
//
//   all-gather, product      y = (all ranks' x, below each other) * w, each tile row as soon as it has come
//   product, reduce-scatter  y = own rows of the sum over ranks of x * w, each tile on its way to its owner at once
//
// Both are compared with sums on the host. Built where CMake is told MSCCLPP_CUTLASS, a folder with CUTLASS's headers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/cutlass.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using namespace mscclpp;

namespace {

constexpr int ranks = 4;

// ---- CUTLASS, as ever -----------------------------------------------------------------------------------------------

using Element = cutlass::bfloat16_t;
using Tile = cute::Shape<cute::_128, cute::_256, cute::_64>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;
using Problem = cute::Shape<int, int, int, int>;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto,
    float, float, void, Rows, 8, Element, Rows, 8, cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Rows, 8, Element, Columns, 8, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;

template <class Gemm>
typename Gemm::Arguments argumentsOf(Device device, int m, int n, int k, bf16 const* a, bf16 const* b,
                                     bf16* d = nullptr) {
  typename Gemm::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  arguments.problem_shape = {m, n, k, 1};
  arguments.mainloop.ptr_A = reinterpret_cast<Element const*>(a);
  arguments.mainloop.dA = {k, {}, 0};
  arguments.mainloop.ptr_B = reinterpret_cast<Element const*>(b);
  arguments.mainloop.dB = {k, {}, 0};
  arguments.epilogue.thread.alpha = 1;
  arguments.epilogue.ptr_D = reinterpret_cast<Element*>(d);
  arguments.epilogue.dD = {n, {}, 0};
  arguments.hw_info.device_id = device.ordinal;
  arguments.hw_info.sm_count =
      cutlass::KernelHardwareInfo::query_device_multiprocessor_count(arguments.hw_info.device_id);
  return arguments;
}

template <class Gemm>
void start(typename Gemm::Arguments const& arguments, Stream const& stream) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  Gemm gemm;
  auto status = gemm.initialize(arguments, nullptr, native);
  if (status == cutlass::Status::kSuccess) status = gemm.run(native);
  if (status != cutlass::Status::kSuccess) {
    throw Error(ErrorCode::deviceError, std::string("CUTLASS: ") + cutlass::cutlassGetStatusString(status));
  }
}

// ---- all-gather, product --------------------------------------------------------------------------------------------

using GatedGemm = cutlass::gemm::device::GemmUniversalAdapter<
    cutlass::gemm::kernel::GemmUniversal<Problem, Gated<Mainloop>, Epilogue, OwnFirst<>>>;

// Brings the own rows to all ranks, in pieces that have a flag each.
struct Gather {
  static constexpr unsigned maxThreads = 512;
  TileGrid pieces;

  MSCCLPP_DEVICE void operator()(bf16 const* x, layout::WindowHandle const& window,
                                 DeviceTileFlags const& flags) const {
    auto const block = thisBlock();
    auto const round = flags.begin(thisGrid());
    SymmetricMatrix<bf16> const gathered(window, 0, pieces.rows, pieces.columns);
    gathered.check(flags.watch, flags.size);
    for (auto const& piece : tilesOf<OwnOnly<>>(pieces, flags.rank, thisGrid())) {
      for (int i = 0; i < flags.size; ++i) {
        int const peer = (flags.rank + flags.size - i) % flags.size;  // who takes these rows first comes first
        if (block.rank() == 0) round.ready(peer);
        block.sync();
        copy(block, gathered.of(peer).at(piece.row, 0), x + std::size_t{piece.shardRow} * pieces.columns,
             std::uint64_t{piece.rows} * pieces.columns * sizeof(bf16));
        block.sync();
        if (block.rank() == 0) round.arrive(peer, piece.number);
      }
    }
  }
};

void gatherProduct(bf16 const* x, bf16 const* w, bf16* y, Problem const& shape, MemoryWindow const& gathered,
                   TileFlags const& flags, bf16 const* all, Stream const& stream, Stream const& beside) {
  constexpr unsigned movers = 8;
  auto const [m, n, k, l] = shape;
  auto arguments = argumentsOf<GatedGemm>(stream.device(), m, n, k, all, w, y);
  arguments.mainloop.await(flags.deviceHandle());
  arguments.scheduler.rank = flags.rank();
  arguments.scheduler.ranks = flags.size();
  arguments.hw_info.sm_count -= movers;
  TileGrid const pieces{unsigned(m), unsigned(k), 128, unsigned(k), flags.size()};
  beside.runAfter(stream);
  launch(beside, {.blocks = movers, .threads = 512}, Gather{pieces}, x, gathered.deviceHandle(), flags.deviceHandle());
  start<GatedGemm>(arguments, stream);
  stream.runAfter(beside);
  launch(stream, {.blocks = 1, .threads = 128}, EndRound{}, flags.deviceHandle());
}

// ---- product, reduce-scatter ----------------------------------------------------------------------------------------

using ScatterGemm = cutlass::gemm::device::GemmUniversalAdapter<
    cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, PeerEpilogue<Epilogue, ranks>, PeersFirst<>>>;

// The owner's sums, in rank order.
struct Fold {
  static constexpr unsigned maxThreads = 512;
  TileGrid tiles;

  MSCCLPP_DEVICE void operator()(bf16* y, layout::WindowHandle const& window, DeviceTileFlags const& flags) const {
    auto const block = thisBlock();
    auto const round = flags.begin(thisGrid());
    Slots<bf16> const slots(window, 0, tiles);
    slots.check(flags.watch);
    MatrixView const out{y, tiles.rowsOf(flags.rank), tiles.columns};
    for (auto const& tile : tilesOf<OwnOnly<>>(tiles, flags.rank, thisGrid())) {
      if (block.rank() == 0) round.await(tile.number, static_cast<unsigned>(flags.size));
      block.sync();
      foldSlots<Sum>(block, slots, tile, out.part(tile.shardRow, tile.column, tile.rows, tile.columns));
    }
    round.end();
  }
};

void productScatter(bf16 const* x, bf16 const* w, bf16* y, Problem const& shape, MemoryWindow const& slots,
                    TileFlags const& flags, Stream const& stream) {
  auto const [m, n, k, l] = shape;
  auto arguments = argumentsOf<ScatterGemm>(stream.device(), m, n, k, x, w);
  arguments.epilogue.to(slots.deviceHandle(), flags.deviceHandle());
  arguments.scheduler.rank = flags.rank();
  arguments.scheduler.ranks = flags.size();
  start<ScatterGemm>(arguments, stream);
  TileGrid const tiles{unsigned(m), unsigned(n), 128, 256, flags.size()};
  launch(stream, {.blocks = 64, .threads = 512}, Fold{tiles}, y, slots.deviceHandle(), flags.deviceHandle());
}

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
  constexpr TileGrid tiles{m, n, 128, 256, ranks};
  auto const device = communicator.device();
  auto const rank = communicator.rank();
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
    gatherProduct(own.data(), w.data(), product.data(), {m, n, k, 1}, gathered, flags, all.data(), stream, beside);
  }
  communicator.synchronize(stream);
  check("all-gather, product", rank, copyToHost(product), m, n, 1.0f / 256,
        [&](int i, int j) { return row(i / share, i % share, rank, j); });

  auto const x = toDevice(matrix(rank, m, k));
  GpuBuffer<bf16> const parts(device, std::size_t{m} * n), sums(device, std::size_t{share} * n);
  MemoryWindow const slots(communicator, parts.data(), parts.bytes());
  for (int round = 0; round < 3; ++round) {
    productScatter(x.data(), w.data(), sums.data(), {m, n, k, 1}, slots, flags, stream);
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
    runRanks(kernelDevice, ranks, runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
