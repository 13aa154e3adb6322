// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "norm.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/format.hpp"
#include "detailed_call.hpp"
#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/jit/kernel.hpp"

namespace mscclpp::torch {
namespace {

constexpr char const* kernelText = R"(
#include <cmath>

#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"

using namespace mscclpp;

// Of a row of sums, and of what was fetched beside it.
template <class R, class... Residual>
MSCCLPP_DEVICE void addResidual(R& row, Residual const&... residual) {
  if constexpr (sizeof...(Residual) != 0) row.map([](float v, float old) { return v + old; }, residual...);
}
template <class R>
MSCCLPP_DEVICE float squaresOf(R& row) {
  return row.sum([](float v) { return v * v; });
}
template <class R, class W>
MSCCLPP_DEVICE void normalise(R& row, float squares, std::size_t columns, float epsilon, W const& weight) {
  float const norm = 1 / std::sqrt(squares / static_cast<float>(columns) + epsilon);
  row.map([=](float v, float w) { return v * norm * w; }, weight);
}

template <class Transport, class Group, class T, bool Adds, unsigned MaxThreads>
struct ReduceAndNorm {
  static constexpr unsigned maxThreads = MaxThreads;

  MSCCLPP_DEVICE void operator()(T const* x, T const* residual, T const* weight, T* y, T* kept, std::size_t rows,
                                 std::size_t columns, float epsilon, DeviceTeam const& team) const {
    allowNextKernel();
    auto const addAndNorm = [&](auto& row, auto const& w, auto const&... old) {
      addResidual(row, old...);
      auto const squares = squaresOf(row);
      row.store(MatrixView{kept, rows, columns});
      normalise(row, squares, columns, epsilon, w);
      row.store(MatrixView{y, rows, columns});
    };
    AllReduceRows<RowOneShot, Transport, Sum, 0, Group> const allReduce{team};
    MatrixView const in{x, rows, columns};
    if constexpr (Adds) {
      allReduce(thisGrid(), in, addAndNorm, View{weight, columns}, MatrixView{residual, rows, columns});
    } else {
      allReduce(thisGrid(), in, addAndNorm, View{weight, columns});
    }
    waitForPreviousKernel();
  }
};

// The same with rows that are sums already, which may lie where `y` does. A row of more elements than the registers of
// a block hold is read twice, in parts.
template <class Transport, class Group, class T, bool Adds, unsigned MaxThreads>
struct NormAlone {
  static constexpr unsigned maxThreads = MaxThreads;

  MSCCLPP_DEVICE void operator()(T const* x, T const* residual, T const* weight, T* y, T* kept, std::size_t rows,
                                 std::size_t columns, float epsilon, DeviceTeam const& team) const {
    allowNextKernel();
    waitForPreviousKernel();
    typename Group::template Threads<GridGroup> threads(thisGrid(), team.watch);
    using Part = Row<Transport, T, float, Transport::unroll, decltype(threads)>;
    std::size_t const most = Part::capacity(threads);
    auto const columnsFrom = [&](std::size_t first) { return minimum(most, columns - first); };
    for (std::size_t index = threads.row(); index < rows; index += threads.rows()) {
      auto const partOf = [&](auto* data, std::size_t first) {
        return MatrixView{data + (index * columns + first), 1, columnsFrom(first)};
      };
      auto const load = [&](Part& part, std::size_t first) {
        auto const add = [&](auto const& sums, auto const&... old) {
          MSCCLPP_UNROLL
          for (unsigned i = 0; i < Part::chunks; ++i) part.values(i) = convert<float>(sums.values(i));
          addResidual(part, old...);
        };
        if constexpr (Adds) {
          add(part.fetch(partOf(x, first)), part.fetch(partOf(residual, first)));
        } else {
          add(part.fetch(partOf(x, first)));
        }
      };
      auto const finish = [&](Part& part, std::size_t first, float squares, auto const& w) {
        normalise(part, squares, columns, epsilon, w);
        part.store(partOf(y, first));
      };
      float squares = 0;
      for (std::size_t first = 0; first < columns; first += most) {
        Part part(team, threads, 0, columnsFrom(first), 1);
        auto const w = part.fetch(View{weight + first, columnsFrom(first)});
        load(part, first);
        part.store(partOf(kept, first));
        squares += squaresOf(part);
        if (columns <= most) finish(part, first, squares, w);
      }
      if (columns <= most) continue;
      for (std::size_t first = 0; first < columns; first += most) {
        Part part(team, threads, 0, columnsFrom(first), 1);
        load(part, first);
        finish(part, first, squares, View{weight + first, columnsFrom(first)});
      }
    }
  }
};
)";

// How a call is done. Rows are counted in bytes, since what a thread holds is bytes.
struct Way {
  char const* kernel;
  char const* transport;
  char const* group;
  unsigned mostThreads;  // of a block: for more the compiler would spill registers
  LaunchShape (*shape)(std::size_t rows, std::size_t rowBytes, unsigned maxBlocks);
  layout::WorkspaceRequirement (*requirement)(std::uint32_t ranks, std::uint32_t blocks, std::uint32_t threads);

  LaunchShape shapeOfRow(std::size_t rowBytes) const { return shape(1, rowBytes, maxClusterBlocks); }
  // Whether the threads of a row hold it.
  bool fits(std::size_t rowBytes) const { return shapeOfRow(rowBytes).threads <= mostThreads; }
};
template <class Transport, class Group>
constexpr Way wayOf(char const* kernel, unsigned mostThreads, char const* transport, char const* group) {
  using Rows = AllReduceRows<RowOneShot, Transport, Sum, 0, Group>;
  return {kernel, transport, group, mostThreads, &Rows::template shape<std::uint8_t>, &Rows::requirement};
}
template <class Transport, class Group = BlockPerRow>
constexpr Way together(char const* transport, char const* group = "BlockPerRow") {
  return wayOf<Transport, Group>("ReduceAndNorm", 640, transport, group);
}
// A row by a cluster, whose blocks send and fetch side by side.
constexpr std::array byClusters{
    together<PacketTransport<LL128, 1>, ClusterPerRow>("PacketTransport<LL128, 1>", "ClusterPerRow")};
// By a block. Of long rows a thread holds more.
constexpr std::array withLines{together<PacketTransport<LL128, 1>>("PacketTransport<LL128, 1>"),
                               together<PacketTransport<LL128, 2>>("PacketTransport<LL128, 2>"),
                               together<PacketTransport<LL128, 4>>("PacketTransport<LL128, 4>")};
// Where links may tear lines.
constexpr std::array withoutLines{together<MemoryTransport<1>>("MemoryTransport<1>"),
                                  together<MemoryTransport<2>>("MemoryTransport<2>"),
                                  together<MemoryTransport<4>>("MemoryTransport<4>")};
constexpr Way alone = wayOf<MemoryTransport<2>, BlockPerRow>("NormAlone", 1024, "MemoryTransport<2>", "BlockPerRow");

bool hasClusters(Device const& device) {
  if (device.kind == DeviceKind::sim) return true;
  static bool const all = device.properties().computeMajor >= 9;
  return all;
}
Way const* wayFor(bool clusters, bool wholeLines, std::size_t rowBytes) {
  std::span<Way const> ways = withoutLines;
  if (wholeLines) ways = clusters ? std::span<Way const>(byClusters) : std::span<Way const>(withLines);
  auto const found = std::ranges::find_if(ways, [=](Way const& way) { return way.fits(rowBytes); });
  return found == ways.end() ? nullptr : &*found;
}

// Of rows in one exchange: until what each rank sends takes longer than a kernel more, and in one round.
std::size_t mostRows(unsigned blocksOfRow, std::size_t rowBytes, int ranks) {
  constexpr std::size_t mostSent = 2 << 20;
  return std::clamp<std::size_t>(mostSent / static_cast<std::size_t>(ranks - 1) / rowBytes, 1,
                                 PacketTransport<LL128>::launch.largestBlocks / blocksOfRow);
}

struct Details {
  NormCall const& norm;
  bool clusters;
  bool exchanges;
  std::size_t rowBytes() const { return norm.columns * bytesOf(norm.type); }
};

struct Launch {
  Way const* way;
  LaunchShape shape;  // of the largest grid
};
Launch launchFor(World const& world, Details const& details) {
  auto const rowBytes = details.rowBytes();
  Launch launch{&alone, alone.shape(1, rowBytes, 1)};
  if (details.exchanges) {
    launch.way = wayFor(details.clusters, world.wholeLines, rowBytes);
    auto const ofRow = launch.way->shapeOfRow(rowBytes).clusterBlocks;
    launch.shape = launch.way->shape(mostRows(ofRow, rowBytes, world.ranks), rowBytes, world.maxBlocks);
  } else {
    // As many threads as the library's own grids have.
    launch.shape.blocks = std::max(1u, world.maxBlocks * 512 / launch.shape.threads);
  }
  launch.shape.overlapPrevious = world.ranksPerDevice == 1;
  return launch;
}

struct Context {
  jit::Kernel<void(void const*, void const*, void const*, void*, void*, std::size_t, std::size_t, float,
                   layout::TeamHandle)>
      kernel;
  LaunchShape shape;
  std::optional<Team> team;  // where there is an exchange
  layout::TeamHandle handle;
};

using Called = DetailedCall<Details>;

std::shared_ptr<void> makeContext(Communicator const& communicator, CollectiveCall const& call) {
  static jit::Source const source{kernelText, "all_reduce_rms_norm.cpp"};
  auto const& details = Called::of(call);
  auto const& norm = details.norm;
  auto const [way, shape] = launchFor(World::of(communicator), details);
  // Fewer threads have more registers each, which the epilogue of an exchange can use.
  auto const maxThreads = details.exchanges ? roundUp(shape.threads, 128u) : way->mostThreads;
  auto const name = fmt::format("{}<{}, {}, {}, {}, {}>", way->kernel, way->transport, way->group,
                                elementName(norm.type), norm.residual != nullptr, maxThreads);
  auto const context = std::make_shared<Context>(Context{{communicator.device(), source, name}, shape, {}, {}});
  if (details.exchanges) {
    auto const ranks = static_cast<std::uint32_t>(communicator.size());
    context->handle =
        context->team.emplace(communicator, way->requirement(ranks, shape.blocks, shape.threads)).deviceHandle();
  } else {
    context->handle.size = 1;
    context->handle.watch = communicator.watch();
  }
  return context;
}

NativeAlgorithm const& algorithm() {
  NativeFunctions functions;
  functions.contextKey = [](Communicator const& communicator, CollectiveCall const& call) {
    auto const& details = Called::of(call);
    auto const [way, shape] = launchFor(World::of(communicator), details);
    auto const tag = static_cast<std::uint64_t>(details.norm.type) << 1 |
                     static_cast<std::uint64_t>(details.norm.residual != nullptr);
    return ContextKey{.in = way, .inBytes = shape.threads, .outBytes = shape.blocks, .tag = tag};
  };
  functions.makeContext = &makeContext;
  functions.run = [](std::shared_ptr<void> const& held, CollectiveCall const& call, Stream const& stream) {
    auto const& context = *static_cast<Context const*>(held.get());
    auto const& norm = Called::of(call).norm;
    auto shape = context.shape;
    shape.blocks = static_cast<unsigned>(std::min<std::size_t>(norm.rows * shape.clusterBlocks, shape.blocks));
    context.kernel.launch(stream, shape, norm.in, norm.residual, norm.weight, norm.y, norm.kept, norm.rows,
                          norm.columns, norm.epsilon, context.handle);
  };
  static NativeAlgorithm const made("all_reduce_rms_norm", Collective::allReduce, std::move(functions));
  return made;
}

}  // namespace

void startNorm(Engine& engine, NormCall const& call, void* stream) {
  auto norm = call;
  Details details{norm, hasClusters(engine.device()), false};
  auto const rowBytes = details.rowBytes();
  if (engine.size() > 1) {
    // Who has torn lines finds that out with its first context: what all ways can do is done by any.
    auto const* const way = wayFor(details.clusters, true, rowBytes);
    details.exchanges = way != nullptr && withoutLines.back().fits(rowBytes) &&
                        norm.rows <= mostRows(way->shapeOfRow(rowBytes).clusterBlocks, rowBytes, engine.size());
    if (!details.exchanges) {
      Call sum{.collective = Collective::allReduce,
               .in = norm.in,
               .out = norm.y,
               .count = norm.rows * norm.columns,
               .type = norm.type,
               .op = ReduceOp::sum};
      engine.start({&sum, 1}, stream);
      norm.in = norm.y;
    }
  }
  Called called{{}, details};
  called.in = norm.in;
  called.out = norm.y;
  called.inBytes = called.outBytes = norm.rows * rowBytes;
  called.type = norm.type;
  called.op = ReduceOp::sum;
  engine.run(algorithm(), called, stream);
}

}  // namespace mscclpp::torch
