// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Three fused kernels around a scalar product of matrices: all-gather ahead of it, reduce-scatter and all-reduce behind
// it. Each is run for several rounds on every rank and compared, bit for bit, with the same steps on the host. Products
// and their sums are exact; sums over ranks are not, so their order shows.
//
// A Mistake is one thing done wrong, for the checker to find. Lines with marks `// <- name` are those it must name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <vector>

#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/roles.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/tiles/tickets.hpp"
#include "mscclpp/device/tiles/tile_flags.hpp"
#include "mscclpp/device/tiles/tile_order.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

namespace mscclpp_test {

inline char const* fusedSource() { return std::source_location::current().file_name(); }

inline namespace MSCCLPP_BACKEND {

enum class Mistake : std::uint8_t {
  none,
  waitRead,       // bulkWaitRead() in place of bulkWait() ahead of arrive()
  relaxedAwait,   // a look without acquire
  noFence,        // no bulkFence() between await() and bulk loads
  noReady,        // a peer's memory is written before it has begun the round
  arriveEarly,    // ahead of the barrier of those who write
  residualEarly,  // read ahead of begin(), which waits for the kernel before
};

struct FusedShape {
  int ranks;
  std::uint32_t rows, inner, columns;
  std::uint32_t tileRows, tileColumns;
  bool bulkWrites = false;  // then lengths of rows and tiles are multiples of 8
  bool bulkReads = false;

  // Of the product, and of the gathered factor: a flag for each of its tile rows.
  MSCCLPP_HOST_DEVICE constexpr TileGrid tiles() const { return {rows, columns, tileRows, tileColumns, ranks}; }
  MSCCLPP_HOST_DEVICE constexpr TileGrid gates() const { return {rows, inner, tileRows, inner, ranks}; }
};

struct alignas(16) FusedPiece {
  bf16 values[512];
};

template <class Tag>
struct BulkReader {
  FusedPiece& piece = arch::blockShared<FusedPiece, Tag>();
  BulkBarrier& barrier = arch::blockShared<BulkBarrier, Tag>();
  unsigned loads = 0;

  // By all threads of the block; `first`: what its first thread does ahead.
  template <class First>
  MSCCLPP_DEVICE bf16 const* load(bf16 const* from, std::size_t count, layout::Watch* watch, First const& first) {
    auto const block = thisBlock();
    auto const bytes = static_cast<std::uint32_t>(count * sizeof(bf16));
    block.sync();  // all have read the piece before
    if (block.rank() == 0) {
      if (loads == 0) barrier.init(1);
      first();
      barrier.arriveExpect(bytes);
      bulkLoad(&piece, from, bytes, barrier);  // <- bulk gate read
    }
    block.sync();
    barrier.wait(watch, loads++ % 2);
    return piece.values;
  }
};

// One element of a product.
MSCCLPP_HOST_DEVICE float product(bf16 const* row, MatrixView<bf16 const> const& weights, std::size_t column) {
  float sum = 0;
  for (std::size_t k = 0; k < weights.rows; ++k) {
    sum += static_cast<float>(row[k]) * static_cast<float>(*weights.at(k, column));  // <- gate read
  }
  return sum;
}

template <Mistake M, class R>
MSCCLPP_DEVICE void awaitTile(DeviceTileFlags const& flags, R const& round, unsigned tile, unsigned arrivals) {
  if constexpr (M == Mistake::relaxedAwait) {
    poll(flags.watch, {layout::WaitKind::tile, -1, tile, arrivals}, [&](std::uint64_t& seen) {
      seen = load<Order::relaxed, Scope::system>(flags.counter(flags.rank, round.number(), tile));
      return seen >= arrivals;
    });
  } else {
    round.await(tile, arrivals);
  }
}

template <Mistake M, class R>
MSCCLPP_DEVICE void readyRank(R const& round, int rank) {
  if constexpr (M != Mistake::noReady) round.ready(rank);
}

// ---- all-gather, product --------------------------------------------------------------------------------------------

// y = (all ranks' x, below each other) * weights. Some blocks move, the others multiply what has come; or whoever is
// free moves what is left to move, and multiplies then.
template <Mistake M = Mistake::none>
struct GatherProduct {
  FusedShape shape;
  unsigned movers;
  bool byTicket = false;

  MSCCLPP_DEVICE void operator()(bf16 const* x, bf16 const* w, float* y, layout::WindowHandle const& window,
                                 DeviceTileFlags const& flags) const {
    allowNextKernel();
    auto const round = flags.begin(thisGrid());
    SymmetricMatrix<bf16> const gathered(window, 0, shape.rows, shape.inner);
    gathered.check(flags.watch, flags.size);
    auto const moves = [&](auto&& by) { move(x, gathered, flags, round, by); };
    auto const products = [&](auto&& by) {
      multiply(w, MatrixView{y, shape.rows, shape.columns}, gathered.own(), flags, round, by);
    };
    if (byTicket) {
      Tickets tickets(round, thisBlock());
      moves(tickets);
      products(tickets);
    } else {
      Roles{movers}.split(thisGrid(), moves, products);
    }
    round.end();
  }

 private:
  // `by`: the blocks that do it, or tickets.
  template <class R, class By>
  MSCCLPP_DEVICE void move(bf16 const* x, SymmetricMatrix<bf16> const& gathered, DeviceTileFlags const& flags,
                           R const& round, By& by) const {
    auto const block = thisBlock();
    BulkReader<GatherProduct> reader;
    for (auto const tile : tilesOf<OwnOnly<>>(shape.gates(), flags.rank, by)) {
      auto const* from = x + std::size_t{tile.shardRow} * shape.inner;
      auto const count = std::size_t{tile.rows} * shape.inner;
      if (shape.bulkWrites) from = reader.load(from, count, flags.watch, [] {});
      // The rank before this one takes these rows first, OwnFirst.
      for (int i = 0; i < flags.size; ++i) {
        int const peer = (flags.rank + flags.size - i) % flags.size;
        if (block.rank() == 0) readyRank<M>(round, peer);
        auto* const to = gathered.of(peer).at(tile.row, 0);
        if (shape.bulkWrites) {
          if (block.rank() != 0) continue;
          bulkStore(to, from, static_cast<std::uint32_t>(count * sizeof(bf16)));  // <- bulk mover write
          bulkCommit();
          if constexpr (M == Mistake::waitRead)
            bulkWaitRead();
          else
            bulkWait();
        } else {
          block.sync();
          copy(block, to, from, count * sizeof(bf16));  // <- mover write
          if constexpr (M != Mistake::arriveEarly) block.sync();
        }
        if (block.rank() == 0) round.arrive(peer, tile.number);
      }
    }
    if (M == Mistake::waitRead && shape.bulkWrites) bulkWait();
  }

  template <class R, class By>
  MSCCLPP_DEVICE void multiply(bf16 const* w, MatrixView<float> const& y, MatrixView<bf16> const& gathered,
                               DeviceTileFlags const& flags, R const& round, By& by) const {
    auto const block = thisBlock();
    MatrixView const weights{w, shape.inner, shape.columns};
    BulkReader<MatrixView<float>> reader;
    for (auto const tile : tilesOf<OwnFirst<2>>(shape.tiles(), flags.rank, by)) {
      auto const gate = shape.gates().at(tile.owner, tile.down, 0);
      bf16 const* rows = gathered.at(tile.row, 0);
      if (shape.bulkReads) {
        rows = reader.load(rows, std::size_t{tile.rows} * shape.inner, flags.watch, [&] {
          awaitTile<M>(flags, round, gate.number, 1);
          if constexpr (M != Mistake::noFence) bulkFence();
        });
      } else {
        if (block.rank() == 0) awaitTile<M>(flags, round, gate.number, 1);
        block.sync();
      }
      for (unsigned i = block.rank(); i < tile.rows * tile.columns; i += block.size()) {
        auto const row = i / tile.columns;
        auto const column = tile.column + i % tile.columns;
        *y.at(tile.row + row, column) = product(rows + std::size_t{row} * shape.inner, weights, column);
      }
    }
  }
};

// ---- product, slots -------------------------------------------------------------------------------------------------

// This rank's part of x * weights, each tile in its owner's slot.
template <Mistake M, class Order, class R>
MSCCLPP_DEVICE void writeParts(FusedShape const& shape, bf16 const* x, bf16 const* w, Slots<bf16> const& slots,
                               DeviceTileFlags const& flags, R const& round) {
  auto const block = thisBlock();
  MatrixView const weights{w, shape.inner, shape.columns};
  auto& piece = arch::blockShared<FusedPiece, Order>();
  for (auto const tile : tilesOf<Order>(shape.tiles(), flags.rank, thisGrid())) {
    auto const target = slots.target(tile);
    auto const elements = tile.rows * tile.columns;
    auto const element = [&](unsigned i) {
      auto const* const row = x + std::size_t{tile.row + i / tile.columns} * shape.inner;
      return bf16(product(row, weights, tile.column + i % tile.columns));
    };
    if (shape.bulkWrites) {
      for (unsigned i = block.rank(); i < elements; i += block.size()) piece.values[i] = element(i);
      bulkFence();
      block.sync();
      if (block.rank() == 0) {
        readyRank<M>(round, tile.owner);
        for (unsigned row = 0; row < tile.rows; ++row) {
          bulkStore(target.at(row, 0), piece.values + row * tile.columns,  // <- bulk part
                    static_cast<std::uint32_t>(tile.columns * sizeof(bf16)));
        }
        bulkCommit();
        if constexpr (M == Mistake::waitRead)
          bulkWaitRead();
        else
          bulkWait();
        round.arrive(tile.owner, tile.number);
      }
      block.sync();  // the piece is free
    } else {
      if (block.rank() == 0) readyRank<M>(round, tile.owner);
      block.sync();
      for (unsigned i = block.rank(); i < elements; i += block.size()) {
        *target.at(i / tile.columns, i % tile.columns) = element(i);  // <- part
      }
      if constexpr (M != Mistake::arriveEarly) block.sync();
      if (block.rank() == 0) round.arrive(tile.owner, tile.number);
    }
  }
  if (M == Mistake::waitRead && shape.bulkWrites && block.rank() == 0) bulkWait();
}

// Whichever block is free takes the next of this rank's tiles once all ranks' parts are there.
template <Mistake M, class R, class Finish>
MSCCLPP_DEVICE void foldOwnTiles(FusedShape const& shape, DeviceTileFlags const& flags, R const& round,
                                 Finish const& finish) {
  auto const block = thisBlock();
  Tickets tickets(round, block);
  for (auto const& tile : tilesOf<OwnOnly<2>>(shape.tiles(), flags.rank, tickets)) {
    if (block.rank() == 0) awaitTile<M>(flags, round, tile.number, static_cast<unsigned>(flags.size));
    block.sync();
    finish(tile);
  }
}

// y = own rows of (sum over ranks of x * weights + bias) + residual.
template <Mistake M = Mistake::none>
struct ProductScatter {
  FusedShape shape;

  MSCCLPP_DEVICE void operator()(bf16 const* x, bf16 const* w, float const* bias, float const* residual, float* y,
                                 layout::WindowHandle const& window, DeviceTileFlags const& flags) const {
    allowNextKernel();
    auto const grid = shape.tiles();
    float early = 0;
    if constexpr (M == Mistake::residualEarly) early = residual[0];  // <- early residual
    auto const round = flags.begin(thisGrid());
    Slots<bf16> const slots(window, 0, grid);
    slots.check(flags.watch);
    writeParts<M, PeersFirst<2>>(shape, x, w, slots, flags, round);
    MatrixView const out{y, grid.rowsOf(flags.rank), shape.columns};
    MatrixView const kept{residual, grid.rowsOf(flags.rank), shape.columns};
    foldOwnTiles<M>(shape, flags, round, [&](TileAt const& tile) {
      auto const first = grid.firstRow(flags.rank);
      foldSlots<Sum>(  // <- fold
          thisBlock(), slots, tile, out.part(tile.shardRow, tile.column, tile.rows, tile.columns),
          [&](auto values, TilePlace const& at) {
            for (unsigned k = 0; k < at.count; ++k) {
              values[k] = values[k] + bias[at.column + k] + (*kept.at(at.row - first, at.column + k) + early * 0);
            }
            return values;
          });
    });
    round.end();
  }
};

// z = sum over ranks of x * weights, plus 1. Owners, of which each tile has another one than the tile before, add up
// and hand the finished tiles round; every rank goes on with each as it comes.
template <Mistake M = Mistake::none>
struct ProductSum {
  FusedShape shape;

  // Beside the tiles' flags for parts, one for each finished tile.
  static constexpr std::uint32_t flagsOf(FusedShape const& shape) { return 2 * shape.tiles().count(); }
  MSCCLPP_HOST_DEVICE static constexpr std::uint64_t sumOffset(FusedShape const& shape) {
    return roundUp<std::uint64_t>(Slots<bf16>::bytes(shape.tiles()), 16);
  }

  MSCCLPP_DEVICE void operator()(bf16 const* x, bf16 const* w, float* z, layout::WindowHandle const& window,
                                 DeviceTileFlags const& flags) const {
    allowNextKernel();
    auto const block = thisBlock();
    auto const grid = shape.tiles();
    auto const round = flags.begin(thisGrid());
    Slots<bf16> const slots(window, 0, grid);
    SymmetricMatrix<float> const sums(window, sumOffset(shape), shape.rows, shape.columns);
    sums.check(flags.watch, flags.size);
    writeParts<M, RoundRobinOwner<2>>(shape, x, w, slots, flags, round);

    foldOwnTiles<M>(shape, flags, round, [&](TileAt const& tile) {
      auto const own = partOf(sums.own(), tile);
      foldSlots<Sum>(block, slots, tile, own);
      for (int i = 0; i < flags.size; ++i) {
        int const peer = (flags.rank + i) % flags.size;
        if (block.rank() == 0) readyRank<M>(round, peer);
        block.sync();
        auto const there = partOf(sums.of(peer), tile);
        for (unsigned row = 0; row < tile.rows && peer != flags.rank; ++row) {
          copy(block, there.at(row, 0), own.at(row, 0), tile.columns * sizeof(float));
        }
        block.sync();
        if (block.rank() == 0) round.arrive(peer, grid.count() + tile.number);
      }
    });

    MatrixView const out{z, shape.rows, shape.columns};
    for (auto const tile : tilesOf<OwnFirst<2>>(grid, flags.rank, thisGrid())) {
      if (block.rank() == 0) awaitTile<M>(flags, round, grid.count() + tile.number, 1);
      block.sync();
      auto const finished = partOf(sums.own(), tile);
      auto const to = partOf(out, tile);
      for (unsigned i = block.rank(); i < tile.rows * tile.columns; i += block.size()) {
        *to.at(i / tile.columns, i % tile.columns) = *finished.at(i / tile.columns, i % tile.columns) + 1;
      }
    }
    round.end();
  }

 private:
  template <class T>
  MSCCLPP_DEVICE static MatrixView<T> partOf(MatrixView<T> const& whole, TileAt const& tile) {
    return whole.part(tile.row, tile.column, tile.rows, tile.columns);
  }
};

// The layer before: adds to what the fused kernel reads, which is launched to begin before this has ended.
struct AddToResidual {
  MSCCLPP_DEVICE void operator()(float* residual, std::size_t count) const {
    allowNextKernel();
    waitForPreviousKernel();
    for (std::size_t i = thisGrid().rank(); i < count; i += thisGrid().size()) residual[i] += 1;  // <- layer
  }
};

// ---- host -----------------------------------------------------------------------------------------------------------

struct AskForBulkCopies {
  MSCCLPP_DEVICE void operator()(int* has) const { *has = hasBulkCopies() ? 1 : 0; }
};

inline bool canBulkCopy(Rank const& rank) {
  GpuBuffer<int> const has(rank.device, 1);
  launch(rank.stream, {.blocks = 1, .threads = 1}, AskForBulkCopies{}, has.data());
  rank.synchronize();
  return copyToHost(has)[0] != 0;
}

struct FusedCase {
  FusedShape shape;
  unsigned rounds = 2;
  unsigned seed = 1;
  unsigned threads = 32;
  bool overlap = false;
  bool byTicket = false;  // in place of movers by number

  // Each rank has a grid of its own.
  unsigned blocks(int rank) const { return 1 + (static_cast<unsigned>(rank) + seed) % 3; }
  unsigned movers(int rank) const { return 1 + (static_cast<unsigned>(rank) / 2 + seed) % 2; }
  static constexpr unsigned mostBlocks = 5;
};

// Small whole numbers, of a magnitude of the rank's own.
inline std::vector<bf16> fusedInput(unsigned seed, int rank, std::size_t count) {
  std::vector<bf16> values;
  auto const random = randomInput<std::uint32_t>(seed, rank, count);
  auto const unit = static_cast<float>(1u << 3 * rank % 24);
  for (auto const value : random) values.emplace_back((static_cast<float>(value % 7) - 3) * unit);
  return values;
}

inline std::vector<float> productOnHost(std::vector<bf16> const& x, std::vector<bf16> const& w,
                                        FusedShape const& shape) {
  MatrixView const weights{w.data(), shape.inner, shape.columns};
  std::vector<float> y;
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t column = 0; column < shape.columns; ++column) {
      y.push_back(product(x.data() + row * shape.inner, weights, column));
    }
  }
  return y;
}

// Inputs of all rounds, made on every rank for the comparison.
class FusedInputs {
 public:
  FusedInputs(FusedCase const& test, int rank, std::size_t elements) : test_(test), rank_(rank), elements_(elements) {}

  std::vector<bf16> x(unsigned round, int ofRank) const {
    return fusedInput(test_.seed * 100 + round, ofRank, elements_);
  }
  std::vector<bf16> weights(int ofRank) const {
    return fusedInput(test_.seed * 100 + 99, ofRank % 2, std::size_t{test_.shape.inner} * test_.shape.columns);
  }
  GpuBuffer<bf16> xOnDevice(Device device) const {
    GpuBuffer<bf16> all(device, std::max<std::size_t>(elements_ * test_.rounds, 1));
    for (unsigned round = 0; round < test_.rounds; ++round) {
      copyToDevice(all, std::span<bf16 const>(x(round, rank_)), round * elements_);
    }
    return all;
  }
  GpuBuffer<bf16> weightsOnDevice(Device device) const {
    auto const values = weights(rank_);
    GpuBuffer<bf16> buffer(device, values.size());
    copyToDevice(buffer, std::span<bf16 const>(values));
    return buffer;
  }
  std::size_t elements() const { return elements_; }

  // Sums of all ranks' parts, in rank order, before what follows.
  std::vector<float> sums(unsigned round) const {
    std::vector<std::vector<bf16>> parts;
    for (int r = 0; r < test_.shape.ranks; ++r) {
      parts.emplace_back();
      for (float const value : productOnHost(x(round, r), weights(r), test_.shape)) parts.back().emplace_back(value);
    }
    return reduceInRankOrder<float, Sum>(parts);
  }

 private:
  FusedCase const& test_;
  int rank_;
  std::size_t elements_;
};

inline void requireEqual(GpuBuffer<float> const& result, std::vector<float> const& expected) {
  std::vector<float> found(expected.size());
  copyToHost(std::span<float>(found), result);
  if (countDifferent(found, expected) != 0) throw std::runtime_error("a fused kernel's result is not the reference's");
}

template <Mistake M = Mistake::none>
void runGatherProduct(Rank& rank, FusedCase const& test) {
  auto const& shape = test.shape;
  auto const shardRows = shape.tiles().shardRows();
  FusedInputs const inputs(test, rank.rank, std::size_t{shardRows} * shape.inner);
  auto const x = inputs.xOnDevice(rank.device), w = inputs.weightsOnDevice(rank.device);
  auto const outputs = std::size_t{shape.rows} * shape.columns;
  GpuBuffer<float> const y(rank.device, outputs * test.rounds);
  GpuBuffer<bf16> const gathered(rank.device, std::size_t{shape.rows} * shape.inner);
  MemoryWindow const window(rank.communicator, gathered.data(), gathered.bytes());
  TileFlags const flags(rank.communicator, {.tiles = shape.gates().count(), .blocks = FusedCase::mostBlocks});
  rank.meet();
  unsigned const movers = test.movers(rank.rank);
  unsigned const blocks = movers + test.blocks(rank.rank) - 1;  // at times no more than movers
  for (unsigned round = 0; round < test.rounds; ++round) {
    rank.pace();
    launch(rank.stream, {.blocks = blocks, .threads = test.threads, .overlapPrevious = test.overlap},
           GatherProduct<M>{shape, movers, test.byTicket}, x.data() + round * inputs.elements(), w.data(),
           y.data() + round * outputs, window.deviceHandle(), flags.deviceHandle());
  }
  rank.synchronize();
  std::vector<float> expected;
  for (unsigned round = 0; round < test.rounds; ++round) {
    std::vector<bf16> all;
    for (int r = 0; r < shape.ranks; ++r) {
      auto const part = inputs.x(round, r);
      all.insert(all.end(), part.begin(),
                 part.begin() + static_cast<std::ptrdiff_t>(shape.tiles().rowsOf(r)) * shape.inner);
    }
    auto const values = productOnHost(all, inputs.weights(rank.rank), shape);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  requireEqual(y, expected);
}

template <Mistake M = Mistake::none>
void runProductScatter(Rank& rank, FusedCase const& test) {
  auto const& shape = test.shape;
  auto const grid = shape.tiles();
  FusedInputs const inputs(test, rank.rank, std::size_t{shape.rows} * shape.inner);
  auto const x = inputs.xOnDevice(rank.device), w = inputs.weightsOnDevice(rank.device);
  auto const outputs = std::size_t{grid.shardRows()} * shape.columns;
  std::vector<float> biases;
  for (unsigned i = 0; i < shape.columns; ++i) biases.push_back(static_cast<float>(i) * 0.25f);
  GpuBuffer<float> const bias(rank.device, shape.columns), residual(rank.device, outputs),
      y(rank.device, outputs * test.rounds);
  copyToDevice(bias, std::span<float const>(biases));
  GpuBuffer<std::byte> const memory(rank.device, Slots<bf16>::bytes(grid));
  MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
  TileFlags const flags(rank.communicator, {.tiles = grid.count(), .blocks = FusedCase::mostBlocks});
  rank.meet();
  for (unsigned round = 0; round < test.rounds; ++round) {
    rank.pace();
    launch(rank.stream, {.blocks = 1, .threads = test.threads, .overlapPrevious = test.overlap}, AddToResidual{},
           residual.data(), outputs);
    launch(rank.stream, {.blocks = test.blocks(rank.rank), .threads = test.threads, .overlapPrevious = test.overlap},
           ProductScatter<M>{shape}, x.data() + round * inputs.elements(), w.data(), bias.data(), residual.data(),
           y.data() + round * outputs, window.deviceHandle(), flags.deviceHandle());
  }
  rank.synchronize();
  std::vector<float> expected;
  for (unsigned round = 0; round < test.rounds; ++round) {
    auto const sums = inputs.sums(round);
    auto const first = std::size_t{grid.firstRow(rank.rank)} * shape.columns;
    auto const own = std::size_t{grid.rowsOf(rank.rank)} * shape.columns;
    for (std::size_t i = 0; i < outputs; ++i) {
      expected.push_back(i < own ? sums[first + i] + biases[i % shape.columns] + static_cast<float>(round + 1) : 0);
    }
  }
  requireEqual(y, expected);
}

template <Mistake M = Mistake::none>
void runProductSum(Rank& rank, FusedCase const& test) {
  auto const& shape = test.shape;
  FusedInputs const inputs(test, rank.rank, std::size_t{shape.rows} * shape.inner);
  auto const x = inputs.xOnDevice(rank.device), w = inputs.weightsOnDevice(rank.device);
  auto const outputs = std::size_t{shape.rows} * shape.columns;
  GpuBuffer<float> const z(rank.device, outputs * test.rounds);
  GpuBuffer<std::byte> const memory(rank.device, ProductSum<M>::sumOffset(shape) + outputs * sizeof(float));
  MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
  TileFlags const flags(rank.communicator, {.tiles = ProductSum<M>::flagsOf(shape), .blocks = FusedCase::mostBlocks});
  rank.meet();
  for (unsigned round = 0; round < test.rounds; ++round) {
    rank.pace();
    launch(rank.stream, {.blocks = test.blocks(rank.rank), .threads = test.threads, .overlapPrevious = test.overlap},
           ProductSum<M>{shape}, x.data() + round * inputs.elements(), w.data(), z.data() + round * outputs,
           window.deviceHandle(), flags.deviceHandle());
  }
  rank.synchronize();
  std::vector<float> expected;
  for (unsigned round = 0; round < test.rounds; ++round) {
    for (float const sum : inputs.sums(round)) expected.push_back(sum + 1);
  }
  requireEqual(z, expected);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
