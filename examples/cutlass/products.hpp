// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two products of a tensor-parallel layer, by CUTLASS's kernels for Hopper and the parts of mscclpp/cutlass.hpp:
//
//   all-gather, product      y = (all ranks' x, below each other) * w, each tile row as soon as it has come
//   product, reduce-scatter  y = own rows of the sum over ranks of x * w, each tile on its way to its owner at once
//
// Shapes are m x n x k of the whole product: x has m / ranks rows there and m here. Ranks that share a GPU take a part
// of its multiprocessors each. sm_90a.
#pragma once

#include <cstdint>
#include <string>

#include "mscclpp/cutlass.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"
#include "mscclpp/tiles.hpp"

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

namespace cutlass_products {

using namespace mscclpp;

// ---- CUTLASS, as ever -----------------------------------------------------------------------------------------------

using Element = cutlass::bfloat16_t;
using Tile = cute::Shape<cute::_128, cute::_256, cute::_64>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;
using Problem = cute::Shape<int, int, int, int>;

constexpr std::uint32_t tileRows = cute::size<0>(Tile{}), tileColumns = cute::size<1>(Tile{}),
                        clusterRows = tileRows * cute::size<0>(Cluster{});

// The tiles of an m x n product.
constexpr TileGrid tileGrid(int m, int n, int ranks) {
  return {static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(n), tileRows, tileColumns, ranks};
}

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto,
    float, float, void, Rows, 8, Element, Rows, 8, cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Rows, 8, Element, Columns, 8, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;

// `sharing`: how many ranks take a part of the device each. Of schedulers only a TileOrder asks who this rank is.
template <class Gemm>
typename Gemm::Arguments argumentsOf(TileFlags const& flags, Device device, int sharing, int m, int n, int k,
                                     bf16 const* a, bf16 const* b, bf16* d = nullptr) {
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
      cutlass::KernelHardwareInfo::query_device_multiprocessor_count(arguments.hw_info.device_id) / sharing;
  if constexpr (requires { arguments.scheduler.ranks; }) {
    arguments.scheduler.rank = flags.rank();
    arguments.scheduler.ranks = flags.size();
  }
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

inline void gatherProduct(int sharing, bf16 const* x, bf16 const* w, bf16* y, Problem const& shape,
                          MemoryWindow const& gathered, TileFlags const& flags, bf16 const* all, Stream const& stream,
                          Stream const& beside) {
  constexpr unsigned movers = 8;
  auto const [m, n, k, l] = shape;
  auto arguments = argumentsOf<GatedGemm>(flags, stream.device(), sharing, m, n, k, all, w, y);
  arguments.mainloop.await(flags.deviceHandle());
  arguments.hw_info.sm_count -= movers;
  TileGrid const pieces{unsigned(m), unsigned(k), tileRows, unsigned(k), flags.size()};
  beside.runAfter(stream);
  launch(beside, {.blocks = movers, .threads = 512}, Gather{pieces}, x, gathered.deviceHandle(), flags.deviceHandle());
  start<GatedGemm>(arguments, stream);
  stream.runAfter(beside);
  launch(stream, {.blocks = 1, .threads = 128}, EndRound{}, flags.deviceHandle());
}

// ---- product, reduce-scatter ----------------------------------------------------------------------------------------

template <int Ranks>
using ScatterGemm = cutlass::gemm::device::GemmUniversalAdapter<
    cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, PeerEpilogue<Epilogue, Ranks>, PeersFirst<>>>;

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

template <int Ranks>
void productScatter(int sharing, bf16 const* x, bf16 const* w, bf16* y, Problem const& shape, MemoryWindow const& slots,
                    TileFlags const& flags, Stream const& stream) {
  auto const [m, n, k, l] = shape;
  auto arguments = argumentsOf<ScatterGemm<Ranks>>(flags, stream.device(), sharing, m, n, k, x, w);
  arguments.epilogue.to(slots.deviceHandle(), flags.deviceHandle());
  start<ScatterGemm<Ranks>>(arguments, stream);
  launch(stream, {.blocks = 64u / static_cast<unsigned>(sharing), .threads = 512}, Fold{tileGrid(m, n, flags.size())},
         y, slots.deviceHandle(), flags.deviceHandle());
}

}  // namespace cutlass_products
