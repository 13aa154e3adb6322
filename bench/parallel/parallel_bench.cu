// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "parallel/parallel_bench.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "machine/chained.hpp"
#include "machine/machine.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/tiles/tickets.hpp"
#include "mscclpp/device/tiles/tile_product.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "mscclpp/launch/launch.hpp"
#include "parallel/cutlass_arm.hpp"
#include "product/blas.hpp"
#include "session/nccl_peer.hpp"

namespace parallel_bench {
namespace {

using namespace mscclpp;
using bench::NcclCommunicator;
using bench::NcclLibrary;
using product_bench::Blas;
using product_bench::Extent;

// Small whole numbers, of which a product is the same in any order.
MSCCLPP_HOST_DEVICE float number(std::uint32_t seed, std::uint32_t row, std::uint32_t column) {
  auto mixed = (row * 2654435761u ^ column * 2246822519u) + seed * 3266489917u;
  mixed ^= mixed >> 15;
  return static_cast<float>((mixed * 2891336453u >> 16) % 3) - 1;
}

struct Fill {
  MSCCLPP_DEVICE void operator()(MatrixView<bf16> const& to, std::uint32_t seed, std::uint32_t firstRow) const {
    for (std::size_t i = thisGrid().rank(); i < to.rows * to.columns; i += thisGrid().size()) {
      auto const row = static_cast<std::uint32_t>(i / to.columns), column = static_cast<std::uint32_t>(i % to.columns);
      *to.at(row, column) = bf16(number(seed, firstRow + row, column));
    }
  }
};

// y = (all ranks' x, below each other) times w's rows. Some blocks move, the others multiply what has come.
template <unsigned Columns>
struct GatherProduct {
  static constexpr unsigned maxThreads = TileProduct<Columns>::threads;
  TileGrid tiles;
  std::uint32_t inner;
  unsigned movers;

  // A flag for each tile row.
  MSCCLPP_HOST_DEVICE constexpr TileGrid gates() const {
    return {tiles.rows, inner, tiles.tileRows, inner, tiles.ranks};
  }

  MSCCLPP_DEVICE void operator()(bf16 const* x, bf16 const* w, bf16* y, layout::WindowHandle const& window,
                                 DeviceTileFlags const& flags) const {
    auto const block = thisBlock();
    auto const round = flags.begin(thisGrid());
    SymmetricMatrix<bf16> const gathered(window, 0, tiles.rows, inner);
    gathered.check(flags.watch, flags.size);
    auto const move = [&](auto const& blocks) {
      for (auto const& part : tilesOf<OwnOnly<>>(gates(), flags.rank, blocks)) {
        for (int i = 0; i < flags.size; ++i) {
          int const peer = (flags.rank + flags.size - i) % flags.size;  // who takes these rows first comes first
          if (block.rank() == 0) round.ready(peer);
          block.sync();
          copy(block, gathered.of(peer).at(part.row, 0), x + std::size_t{part.shardRow} * inner,
               std::uint64_t{part.rows} * inner * sizeof(bf16));
          block.sync();
          if (block.rank() == 0) round.arrive(peer, part.number);
        }
      }
    };
    auto const multiply = [&](auto const& blocks) {
      TileProduct<Columns> product(flags.watch);
      MatrixView const out{y, tiles.rows, tiles.columns};
      product(
          gathered.own(), MatrixView{w, tiles.columns, inner}, tilesOf<OwnFirst<>>(tiles, flags.rank, blocks),
          [&](TileAt const& tile) { round.await(gates().at(tile.owner, tile.down, 0).number, 1, tile.owner); },
          [&](TileAt const& tile, auto const& sums, auto const&) {
            sums.store(out.part(tile.row, tile.column, tile.rows, tile.columns));
          });
    };
    Roles{movers}.split(thisGrid(), move, multiply);
    round.end();
  }
};

// y = own rows of the sum over ranks of x times w's rows.
template <unsigned Columns>
struct ProductScatter {
  static constexpr unsigned maxThreads = TileProduct<Columns>::threads;
  TileGrid tiles;
  std::uint32_t inner;

  MSCCLPP_DEVICE void operator()(bf16 const* x, bf16 const* w, bf16* y, layout::WindowHandle const& window,
                                 DeviceTileFlags const& flags) const {
    auto const block = thisBlock();
    auto const round = flags.begin(thisGrid());
    Slots<bf16> const slots(window, 0, tiles);
    slots.check(flags.watch);
    TileProduct<Columns> product(flags.watch);
    product(
        MatrixView{x, tiles.rows, inner}, MatrixView{w, tiles.columns, inner},
        tilesOf<PeersFirst<>>(tiles, flags.rank, thisGrid()), [](TileAt const&) {},
        [&](TileAt const& tile, auto const& sums, auto const& warps) {
          if (warps.rank() == 0) round.ready(tile.owner);
          syncWhole(warps);
          sums.store(slots.target(tile));
          syncWhole(warps);
          if (warps.rank() == 0) round.arrive(tile.owner, tile.number);
        });
    MatrixView const out{y, tiles.rowsOf(flags.rank), tiles.columns};
    Tickets tickets(round, block);
    for (auto const& tile : tilesOf<OwnOnly<>>(tiles, flags.rank, tickets)) {
      if (block.rank() == 0) round.await(tile.number, static_cast<unsigned>(flags.size));
      syncWhole(block);
      foldSlots<Sum>(block, slots, tile, out.part(tile.shardRow, tile.column, tile.rows, tile.columns));
    }
    round.end();
  }
};

constexpr unsigned mostPieces = 4;

// What a rank has for all shapes.
struct RankContext {
  Communicator& communicator;
  Options const& options;
  Stream stream;
  Stream side;  // for collectives beside products
  std::vector<Stream> marks;
  std::unique_ptr<bench::Timer> timer;
  AlgorithmCollection algorithms;
  Blas blas;
  NcclCommunicator const* nccl;  // null: it is not measured

  RankContext(Communicator& ofRank, Options const& asked, NcclCommunicator const* peer)
      : communicator(ofRank),
        options(asked),
        stream(ofRank.device()),
        side(ofRank.device()),
        timer(bench::machine(kernelDevice)->makeTimer(stream)),
        algorithms(AlgorithmCollection::defaults()),
        blas(stream),
        nccl(peer) {
    for (unsigned i = 0; i < mostPieces; ++i) marks.emplace_back(ofRank.device());
  }

  int rank() const { return communicator.rank(); }
  unsigned ranks() const { return static_cast<unsigned>(communicator.size()); }
  // All ranks' blocks run at once, also where ranks share a GPU.
  unsigned blocks() const {
    auto const count = communicator.device().properties().multiprocessors;
    return static_cast<unsigned>(count / std::max(1, communicator.ranksPerDevice()));
  }
};

// One shape on one rank.
class ShapeBench {
 public:
  ShapeBench(RankContext& context, Shape const& shape)
      : context_(context),
        shape_(shape),
        x_(device(), std::size_t{gathers() ? share() : shape.rows} * shape.inner),
        w_(device(), std::size_t{shape.columns} * shape.inner),
        between_(device(), std::size_t{shape.rows} * (gathers() ? shape.inner : shape.columns)),
        y_(device(), std::size_t{gathers() ? shape.rows : share()} * shape.columns) {
    auto const fill = [&](GpuBuffer<bf16> const& to, std::uint32_t columns, std::uint32_t seed, std::uint32_t first) {
      launch(context_.stream, {.blocks = 264, .threads = 256}, Fill{},
             MatrixView<bf16>{to.data(), to.size() / columns, columns}, seed, first);
    };
    fill(x_, shape_.inner, seedOfX(rank()), gathers() ? rank() * share() : 0);
    fill(w_, shape_.inner, seedOfWeights(rank()), 0);
    context_.communicator.synchronize(context_.stream);
  }

  ShapeResult measure() {
    ShapeResult result;
    result.shape = shape_;
    auto const ours = [&] { start(ourCollective()); };
    result.product = time([&] { multiply(); }).median;
    result.collective = time(ours).median;
    result.arms.push_back(unfused("cuBLAS, this library", ours));
    if (context_.nccl != nullptr) {
      auto const call = ncclCall();
      result.arms.push_back(unfused("cuBLAS, NCCL", [&] { context_.nccl->start(call, context_.stream); }));
    }
    Line pieces{.arm = "cuBLAS in pieces, this library"};
    for (unsigned const count : {1u, 2u, mostPieces}) {
      if (count == 1 && !gathers()) continue;  // nothing would be beside anything
      for (int const blocks : {0, 8, 16, 32}) inPieces(count, "", blocks, pieces);
      if (gathers()) inPieces(count, "copy_engine", 0, pieces);
    }
    result.arms.push_back(pieces);
    Line fused{.arm = "one kernel"};
    if (gathers()) {
      for (unsigned const movers : {4u, 8u, 16u}) {
        gatherByTiles<256>(movers, fused);
        gatherByTiles<128>(movers, fused);
      }
    } else {
      scatterByTiles<256>(fused);
      scatterByTiles<128>(fused);
    }
    result.arms.push_back(fused);
    auto const cutlass = cutlassArm(
        shape_, {context_.communicator, context_.stream, context_.side, x_.data(), w_.data(), between_, y_.data()});
    if (cutlass) {
      Line line{.arm = "CUTLASS, fused"};
      keepFaster(line, cutlass);
      result.arms.push_back(line);
    }
    return result;
  }

 private:
  bool gathers() const { return shape_.way == Way::gatherProduct; }
  Device device() const { return context_.communicator.device(); }
  std::uint32_t rank() const { return static_cast<std::uint32_t>(context_.rank()); }
  std::uint32_t share() const { return shape_.rows / context_.ranks(); }
  static std::uint32_t seedOfWeights(std::uint32_t rank) { return 100 + rank; }
  // What is gathered is one matrix, dealt out.
  std::uint32_t seedOfX(std::uint32_t rank) const { return gathers() ? 1 : 1 + rank; }

  void multiply() const {
    if (gathers()) {
      context_.blas.multiply(between_.data(), w_.data(), y_.data(), {shape_.rows, shape_.columns, shape_.inner});
    } else {
      context_.blas.multiply(x_.data(), w_.data(), between_.data(), {shape_.rows, shape_.columns, shape_.inner});
    }
  }
  GpuBuffer<bf16> const& sent() const { return gathers() ? x_ : between_; }
  GpuBuffer<bf16> const& received() const { return gathers() ? between_ : y_; }
  CollectiveCall ourCollective() const {
    return {.in = sent().data(),
            .out = received().data(),
            .inBytes = sent().bytes(),
            .outBytes = received().bytes(),
            .type = DataType::bfloat16,
            .op = gathers() ? ReduceOp::none : ReduceOp::sum,
            .symmetric = true};
  }
  Collective collective() const { return gathers() ? Collective::allGather : Collective::reduceScatter; }
  void start(CollectiveCall const& call) {
    context_.algorithms.execute(collective(), context_.communicator, context_.stream, call);
  }
  bench::NcclCall ncclCall() const {
    return {.collective = collective(),
            .in = sent().data(),
            .out = received().data(),
            .count = std::min(sent().size(), received().size()),
            .type = DataType::bfloat16,
            .op = gathers() ? ReduceOp::none : ReduceOp::sum};
  }

  Line unfused(char const* arm, std::function<void()> const& collective) {
    Line line{.arm = arm};
    keepFaster(line, [&] {
      if (gathers()) collective();
      multiply();
      if (!gathers()) collective();
    });
    return line;
  }

  // The collective by so many pieces of each rank's rows, in a second stream beside products of what is there: of own
  // rows and of pieces that have come, or of the pieces that are summed next. By the algorithm of that name, if any.
  void inPieces(unsigned pieces, std::string const& algorithm, int blocks, Line& best) {
    if (share() % pieces != 0) return;
    auto const chunk = share() / pieces;
    auto const ranks = context_.ranks();
    auto const &stream = context_.stream, &side = context_.side;
    auto const& marks = context_.marks;
    auto const startPiece = [&](bf16 const* in, bf16* out, std::size_t width) {
      auto const bytes = std::size_t{chunk} * width * sizeof(bf16);
      auto call = ourCollective();
      call.in = in;
      call.out = out;
      call.inBytes = gathers() ? bytes : ranks * bytes;
      call.outBytes = gathers() ? ranks * bytes : bytes;
      call.blocks = blocks;
      if (!algorithm.empty()) {
        context_.algorithms.at(collective(), algorithm)->execute(context_.communicator, side, call);
      } else {
        context_.algorithms.execute(collective(), context_.communicator, side, call);
      }
    };
    auto const rowOf = [](GpuBuffer<bf16> const& matrix, std::uint32_t row, std::uint32_t width) {
      return matrix.data() + std::size_t{row} * width;
    };
    Extent const piece{chunk, shape_.columns, shape_.inner};
    keepFaster(best, [&] {
      if (gathers()) {
        side.runAfter(stream);
        for (std::uint32_t i = 0; i < pieces; ++i) {
          startPiece(rowOf(x_, i * chunk, shape_.inner), rowOf(between_, i * ranks * chunk, shape_.inner),
                     shape_.inner);
          marks[i].runAfter(side);
        }
        context_.blas.multiply(x_.data(), w_.data(), rowOf(y_, rank() * share(), shape_.columns),
                               {share(), shape_.columns, shape_.inner});
        for (std::uint32_t i = 0; i < pieces; ++i) {
          stream.runAfter(marks[i]);
          auto const others = [&](std::uint32_t first, std::uint32_t count) {
            context_.blas.multiply(rowOf(between_, (i * ranks + first) * chunk, shape_.inner), w_.data(),
                                   rowOf(y_, first * share() + i * chunk, shape_.columns), piece,
                                   {count, chunk, share()});
          };
          others(0, rank());
          others(rank() + 1, ranks - rank() - 1);
        }
        return;
      }
      for (std::uint32_t i = 0; i < pieces; ++i) {
        auto* const products = rowOf(between_, i * ranks * chunk, shape_.columns);
        context_.blas.multiply(rowOf(x_, i * chunk, shape_.inner), w_.data(), products, piece, {ranks, share(), chunk});
        side.runAfter(stream);
        startPiece(products, rowOf(y_, i * chunk, shape_.columns), shape_.columns);
      }
      stream.runAfter(side);
    });
  }

  template <unsigned Columns>
  TileGrid grid() const {
    return {shape_.rows, shape_.columns, TileProduct<Columns>::tileRows, Columns, context_.communicator.size()};
  }
  template <unsigned Columns>
  LaunchShape launchShape() const {
    using Product = TileProduct<Columns>;
    return {.blocks = context_.blocks(), .threads = Product::threads, .dynamicShared = Product::dynamicShared};
  }

  template <unsigned Columns>
  void gatherByTiles(unsigned movers, Line& best) {
    auto const shape = launchShape<Columns>();
    if (movers >= shape.blocks) return;
    GatherProduct<Columns> const kernel{grid<Columns>(), shape_.inner, movers};
    MemoryWindow const window(context_.communicator, between_.data(), between_.bytes());
    TileFlags const flags(context_.communicator, {.tiles = kernel.gates().count(), .blocks = shape.blocks});
    keepFaster(best, [&] {
      launch(context_.stream, shape, kernel, x_.data(), w_.data(), y_.data(), window.deviceHandle(),
             flags.deviceHandle());
    });
  }
  template <unsigned Columns>
  void scatterByTiles(Line& best) {
    auto const shape = launchShape<Columns>();
    ProductScatter<Columns> const kernel{grid<Columns>(), shape_.inner};
    GpuBuffer<std::byte> const memory(device(), Slots<bf16>::bytes(kernel.tiles));
    MemoryWindow const window(context_.communicator, memory.data(), memory.bytes());
    TileFlags const flags(context_.communicator, {.tiles = kernel.tiles.count(), .blocks = shape.blocks});
    keepFaster(best, [&] {
      launch(context_.stream, shape, kernel, x_.data(), w_.data(), y_.data(), window.deviceHandle(),
             flags.deviceHandle());
    });
  }

  bench::ChainTimes time(std::function<void()> const& operate) {
    operate();  // makes what it needs
    context_.communicator.synchronize(context_.stream, std::chrono::minutes(1));
    return bench::timeChain(context_.communicator, context_.stream, *context_.timer, context_.options.operations,
                            context_.options.replays, operate);
  }
  void keepFaster(Line& best, std::function<void()> const& operate) {
    y_.fill(0xff);
    if (gathers()) between_.fill(0xff);
    context_.communicator.bootstrap()->barrier();
    auto const times = time(operate);
    best.wrong += bench::total(context_.communicator, wrong());
    if (best.microseconds != 0 && best.microseconds <= times.median) return;
    best.microseconds = times.median;
    best.p99 = times.p99;
  }

  // Some elements of each of the rows that are looked at, against sums on the host. A rank's part is rounded, and so is
  // their sum.
  std::size_t wrong() const {
    auto const found = copyToHost(y_);
    auto const rows = static_cast<std::uint32_t>(found.size() / shape_.columns);
    constexpr std::uint32_t rowsSeen = 48, elementsSeen = 4;
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < rowsSeen; ++i) {
      auto const row = static_cast<std::uint32_t>(std::uint64_t{i} * (rows - 1) / (rowsSeen - 1));
      for (std::uint32_t j = 0; j < elementsSeen; ++j) {
        auto const column = (row * 61 + j * (shape_.columns / elementsSeen) + j) % shape_.columns;
        auto const expected = expectedAt(row, column);
        auto const is = static_cast<float>(found[std::size_t{row} * shape_.columns + column]);
        count += std::abs(is - expected) <= std::abs(expected) / 64 + 2 ? 0 : 1;
      }
    }
    return count;
  }
  float expectedAt(std::uint32_t row, std::uint32_t column) const {
    auto const product = [&](std::uint32_t seedOfRows, std::uint32_t at, std::uint32_t ofRank) {
      float sum = 0;
      for (std::uint32_t k = 0; k < shape_.inner; ++k) {
        sum += number(seedOfRows, at, k) * number(seedOfWeights(ofRank), column, k);
      }
      return sum;
    };
    if (gathers()) return product(seedOfX(0), row, rank());
    float sum = 0;
    for (std::uint32_t r = 0; r < context_.ranks(); ++r) sum += product(seedOfX(r), rank() * share() + row, r);
    return sum;
  }

  RankContext& context_;
  Shape const& shape_;
  GpuBuffer<bf16> x_, w_;
  GpuBuffer<bf16> between_;  // gathered, or the product ahead of its sum over ranks
  GpuBuffer<bf16> y_;
};

// Null where it cannot be compared with.
std::unique_ptr<NcclCommunicator> joinNccl(Communicator& communicator, NcclLibrary const* library) {
  if (library == nullptr || communicator.ranksPerDevice() > 1) return nullptr;
  return std::make_unique<NcclCommunicator>(*library, *communicator.bootstrap());
}

}  // namespace

std::vector<Shape> shapesOf(int ranks, std::vector<std::uint32_t> const& rows) {
  struct Model {
    char const* name;
    std::uint32_t hidden, attention, keysAndValues, inner;
  };
  // Of Llama 3: 8 and 70 billion parameters.
  constexpr Model models[] = {{"8B", 4096, 4096, 2048, 14336}, {"70B", 8192, 8192, 2048, 28672}};
  auto const n = static_cast<std::uint32_t>(ranks);
  std::vector<Shape> shapes;
  for (auto const& model : models) {
    for (auto const m : rows) {
      auto const add = [&](char const* name, Way way, std::uint32_t columns, std::uint32_t inner) {
        Shape shape{model.name, way, roundUp(m, n), columns, inner};
        shape.layer += ' ';
        shape.layer += name;
        shapes.push_back(std::move(shape));
      };
      add("qkv", Way::gatherProduct, (model.attention + model.keysAndValues) / n, model.hidden);
      add("o", Way::productScatter, model.hidden, model.attention / n);
      add("gate, up", Way::gatherProduct, 2 * model.inner / n, model.hidden);
      add("down", Way::productScatter, model.hidden, model.inner / n);
    }
  }
  return shapes;
}

Result measure(Options const& options) {
  Result result;
  std::optional<NcclLibrary> nccl;
  if (options.beside) nccl.emplace();
  bench::onRanks(kernelDevice, options.ranks, result, [&](Communicator& communicator) {
    auto const peer = joinNccl(communicator, nccl ? &*nccl : nullptr);
    RankContext context(communicator, options, peer.get());
    for (auto const& shape : shapesOf(communicator.size(), options.rows)) {
      if (shape.layer.find(options.layers) == std::string::npos) continue;
      auto measured = ShapeBench(context, shape).measure();
      if (communicator.rank() == 0) result.shapes.push_back(std::move(measured));
    }
  });
  if (nccl) {
    if (!result.note.empty()) result.note += '\n';
    result.note += "NCCL ";
    result.note += nccl->version();
  }
  return result;
}

}  // namespace parallel_bench
