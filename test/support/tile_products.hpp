// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two fused kernels around TileProduct, on either machine: all-gather ahead of it, reduce-scatter behind it. Each is
// run for some rounds on every rank and compared, bit for bit, with the same on the host: products and their sums are
// exact, sums over ranks are made in rank order.
//
// A ProductMistake is one thing done wrong, for the checker to find. Lines with marks `// <- name` are those it must
// name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <vector>

#include "mscclpp/device/tiles/tickets.hpp"
#include "mscclpp/device/tiles/tile_product.hpp"
#include "support/fused.hpp"

namespace mscclpp_test {

inline char const* productSource() { return std::source_location::current().file_name(); }

inline namespace MSCCLPP_BACKEND {

enum class ProductMistake : std::uint8_t {
  none,
  noGate,       // a tile's rows are loaded before their flag
  noReady,      // a slot is written before its owner has begun the round
  arriveEarly,  // a tile's flag goes out before its sums are stored
};

// y = (all ranks' x, below each other) times w's rows. Some blocks move, the others multiply what has come.
template <unsigned Columns, ProductMistake M = ProductMistake::none>
struct GatherTileProduct {
  static constexpr unsigned maxThreads = TileProduct<Columns>::threads;
  TileGrid tiles;
  std::uint32_t inner;
  unsigned movers;

  // A flag for each tile row.
  MSCCLPP_HOST_DEVICE constexpr TileGrid gates() const {
    return {tiles.rows, inner, tiles.tileRows, inner, tiles.ranks};
  }

  MSCCLPP_DEVICE void operator()(bf16 const* x, bf16 const* w, float* y, layout::WindowHandle const& window,
                                 DeviceTileFlags const& flags) const {
    auto const block = thisBlock();
    auto const round = flags.begin(thisGrid());
    SymmetricMatrix<bf16> const gathered(window, 0, tiles.rows, inner);
    gathered.check(flags.watch, flags.size);
    auto const move = [&](auto const& blocks) {
      for (auto const& part : tilesOf<OwnOnly<>>(gates(), flags.rank, blocks)) {
        for (int i = 0; i < flags.size; ++i) {
          int const peer = (flags.rank + flags.size - i) % flags.size;
          if (block.rank() == 0) round.ready(peer);
          block.sync();
          copy(block, gathered.of(peer).at(part.row, 0), x + std::size_t{part.shardRow} * inner,  // <- moved rows
               std::uint64_t{part.rows} * inner * sizeof(bf16));
          block.sync();
          if (block.rank() == 0) round.arrive(peer, part.number);
        }
      }
    };
    auto const multiply = [&](auto const& blocks) {
      auto const gate = [&](TileAt const& tile) {
        if constexpr (M != ProductMistake::noGate) round.await(gates().at(tile.owner, tile.down, 0).number, 1);
      };
      MatrixView const out{y, tiles.rows, tiles.columns};
      auto const finish = [&](TileAt const& tile, auto const& sums, auto const&) {
        sums.store(out.part(tile.row, tile.column, tile.rows, tile.columns));
      };
      MatrixView const weights{w, tiles.columns, inner};
      auto const all = tilesOf<OwnFirst<>>(tiles, flags.rank, blocks);
      TileProduct<Columns> product(flags.watch);
      product(gathered.own(), weights, all, gate, finish);  // <- tile read
    };
    Roles{movers}.split(thisGrid(), move, multiply);
    round.end();
  }
};

// y = own rows of the sum over ranks of x times w's rows, plus `bias` of the column.
template <unsigned Columns, ProductMistake M = ProductMistake::none>
struct TileProductScatter {
  static constexpr unsigned maxThreads = TileProduct<Columns>::threads;
  TileGrid tiles;
  std::uint32_t inner;

  MSCCLPP_DEVICE void operator()(bf16 const* x, bf16 const* w, float const* bias, float* y,
                                 layout::WindowHandle const& window, DeviceTileFlags const& flags) const {
    auto const block = thisBlock();
    auto const round = flags.begin(thisGrid());
    Slots<bf16> const slots(window, 0, tiles);
    slots.check(flags.watch);
    auto const finish = [&](TileAt const& tile, auto const& sums, auto const& warps) {
      if constexpr (M != ProductMistake::noReady) {
        if (warps.rank() == 0) round.ready(tile.owner);
      }
      if constexpr (M == ProductMistake::arriveEarly) {
        if (warps.rank() == 0) round.arrive(tile.owner, tile.number);
      }
      syncWhole(warps);
      sums.store(slots.target(tile));  // <- tile part
      syncWhole(warps);
      if constexpr (M != ProductMistake::arriveEarly) {
        if (warps.rank() == 0) round.arrive(tile.owner, tile.number);
      }
    };
    TileProduct<Columns> product(flags.watch);
    product(
        MatrixView{x, tiles.rows, inner}, MatrixView{w, tiles.columns, inner},
        tilesOf<PeersFirst<>>(tiles, flags.rank, thisGrid()), [](TileAt const&) {}, finish);
    MatrixView const out{y, tiles.rowsOf(flags.rank), tiles.columns};
    Tickets tickets(round, block);
    for (auto const& tile : tilesOf<OwnOnly<>>(tiles, flags.rank, tickets)) {
      if (block.rank() == 0) round.await(tile.number, static_cast<unsigned>(flags.size));
      syncWhole(block);
      foldSlots<Sum>(  // <- tile fold
          block, slots, tile, out.part(tile.shardRow, tile.column, tile.rows, tile.columns),
          [&](auto sums, TilePlace const& at) {
            for (unsigned k = 0; k < at.count; ++k) sums[k] += bias[at.column + k];
            return sums;
          });
    }
    round.end();
  }
};

// ---- host -----------------------------------------------------------------------------------------------------------

struct AskForWarpgroups {
  MSCCLPP_DEVICE void operator()(int* has) const { *has = hasWarpgroupMultiply() ? 1 : 0; }
};

// False, with a message, where this GPU's warpgroups do not multiply.
inline bool canMultiply(Rank const& rank) {
  GpuBuffer<int> const has(rank.device, 1);
  launch(rank.stream, {.blocks = 1, .threads = 1}, AskForWarpgroups{}, has.data());
  rank.synchronize();
  if (copyToHost(has)[0] != 0) return true;
  MESSAGE("left out: products of warpgroups are for compute capability 9.0");
  return false;
}

struct ProductCase {
  std::uint32_t rows, inner, columns;
  unsigned blocks = 2;  // that multiply
  unsigned movers = 1;
  unsigned rounds = 1;
  unsigned seed = 1;
};

// Rows times rows.
inline std::vector<float> tileProductOnHost(std::vector<bf16> const& a, std::vector<bf16> const& b,
                                            ProductCase const& test) {
  std::vector<float> left(a.begin(), a.end()), right(b.begin(), b.end()), y;
  for (std::size_t row = 0; row < test.rows; ++row) {
    for (std::size_t column = 0; column < test.columns; ++column) {
      float sum = 0;
      for (std::size_t k = 0; k < test.inner; ++k) sum += left[row * test.inner + k] * right[column * test.inner + k];
      y.push_back(sum);
    }
  }
  return y;
}

inline GpuBuffer<bf16> onDevice(Device device, std::vector<bf16> const& values) {
  GpuBuffer<bf16> buffer(device, std::max<std::size_t>(values.size(), 1));
  copyToDevice(buffer, std::span<bf16 const>(values));
  return buffer;
}

// Of rank `rank`, in a round; of all rows, of which a gather has the own ones only.
inline std::vector<bf16> productInput(ProductCase const& test, unsigned round, int rank, std::size_t rows) {
  return fusedInput(test.seed * 100 + round, rank, rows * test.inner);
}

// Launches `rounds` rounds behind each other: start(x, y) with the inputs and the memory for results of one.
template <class Start>
void runRounds(Rank& rank, ProductCase const& test, std::size_t inputRows, std::size_t outputs, Start const& start,
               std::vector<float> const& expected) {
  std::vector<bf16> inputs;
  for (unsigned round = 0; round < test.rounds; ++round) {
    auto const x = productInput(test, round, rank.rank, inputRows);
    inputs.insert(inputs.end(), x.begin(), x.end());
  }
  auto const x = onDevice(rank.device, inputs);
  GpuBuffer<float> const y(rank.device, std::max<std::size_t>(outputs * test.rounds, 1));
  y.fill(0xff);
  rank.meet();
  for (unsigned round = 0; round < test.rounds; ++round) {
    rank.pace();
    start(x.data() + round * inputRows * test.inner, y.data() + round * outputs);
  }
  rank.synchronize();
  if (!expected.empty()) requireEqual(y, expected);
}

template <unsigned Columns>
LaunchShape productShape(unsigned blocks) {
  using Product = TileProduct<Columns>;
  return {.blocks = blocks, .threads = Product::threads, .dynamicShared = Product::dynamicShared};
}

template <unsigned Columns, ProductMistake M = ProductMistake::none>
void runGatherTileProduct(Rank& rank, ProductCase const& test) {
  TileGrid const tiles{test.rows, test.columns, TileProduct<Columns>::tileRows, Columns, rank.size};
  GatherTileProduct<Columns, M> const kernel{tiles, test.inner, test.movers};
  auto const weights = productInput(test, 99, rank.rank % 2, test.columns);
  auto const w = onDevice(rank.device, weights);
  GpuBuffer<bf16> const gathered(rank.device, std::size_t{test.rows} * test.inner);
  MemoryWindow const window(rank.communicator, gathered.data(), gathered.bytes());
  auto const blocks = test.movers + test.blocks;
  TileFlags const flags(rank.communicator, {.tiles = kernel.gates().count(), .blocks = blocks});
  std::vector<float> expected;
  for (unsigned round = 0; round < test.rounds; ++round) {
    std::vector<bf16> all;
    for (int r = 0; r < rank.size; ++r) {
      auto const part = productInput(test, round, r, tiles.rowsOf(r));
      all.insert(all.end(), part.begin(), part.end());
    }
    auto const products = tileProductOnHost(all, weights, test);
    expected.insert(expected.end(), products.begin(), products.end());
  }
  auto const start = [&](bf16 const* x, float* y) {
    launch(rank.stream, productShape<Columns>(blocks), kernel, x, w.data(), y, window.deviceHandle(),
           flags.deviceHandle());
  };
  runRounds(rank, test, tiles.rowsOf(rank.rank), std::size_t{test.rows} * test.columns, start, expected);
}

template <unsigned Columns, ProductMistake M = ProductMistake::none>
void runTileProductScatter(Rank& rank, ProductCase const& test) {
  TileGrid const tiles{test.rows, test.columns, TileProduct<Columns>::tileRows, Columns, rank.size};
  TileProductScatter<Columns, M> const kernel{tiles, test.inner};
  auto const w = onDevice(rank.device, productInput(test, 99, rank.rank % 2, test.columns));
  std::vector<float> biases;
  for (unsigned i = 0; i < test.columns; ++i) biases.push_back(static_cast<float>(i % 8) * 0.25f);
  GpuBuffer<float> const bias(rank.device, test.columns);
  copyToDevice(bias, std::span<float const>(biases));
  GpuBuffer<std::byte> const memory(rank.device, Slots<bf16>::bytes(tiles));
  MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
  TileFlags const flags(rank.communicator, {.tiles = tiles.count(), .blocks = test.blocks});
  auto const own = std::size_t{tiles.rowsOf(rank.rank)} * test.columns;
  std::vector<float> expected;
  for (unsigned round = 0; round < test.rounds; ++round) {
    std::vector<std::vector<bf16>> parts;
    for (int r = 0; r < rank.size; ++r) {
      auto const products =
          tileProductOnHost(productInput(test, round, r, test.rows), productInput(test, 99, r % 2, test.columns), test);
      parts.emplace_back(products.begin(), products.end());
    }
    auto const sums = reduceInRankOrder<float, Sum>(parts);
    for (std::size_t i = 0; i < own; ++i) {
      expected.push_back(sums[std::size_t{tiles.firstRow(rank.rank)} * test.columns + i] + biases[i % test.columns]);
    }
  }
  auto const start = [&](bf16 const* x, float* y) {
    launch(rank.stream, productShape<Columns>(test.blocks), kernel, x, w.data(), bias.data(), y, window.deviceHandle(),
           flags.deviceHandle());
  };
  runRounds(rank, test, test.rows, own, start, expected);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
