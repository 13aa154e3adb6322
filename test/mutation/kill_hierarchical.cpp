// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives in two levels, under the checker: a rail and a node for themselves, and both.
#include <vector>

#include "collectives/kernels/device/two_level.hpp"
#include "explored.hpp"
#include "mscclpp/algorithms/collective/hierarchical.hpp"
#include "mscclpp/algorithms/collective/hierarchical_alltoall.hpp"
#include "mscclpp/algorithms/collective/hierarchical_rooted.hpp"
#include "mscclpp/algorithms/collective/hierarchical_send_recv.hpp"
#include "mscclpp/host/hierarchy.hpp"
#include "support/reference.hpp"

using namespace mscclpp_test;

namespace {

// The same over another network.
MSCCLPP_DEVICE DeviceHierarchy over(DeviceHierarchy h, std::uint64_t messageBytes) {
  h.messageBytes = messageBytes;
  return h;
}

struct GatherKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t bytes) const {
    hierarchicalAllGather(h, thisGrid(), bytes);
  }
};

struct ReduceKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t count, std::uint64_t messageBytes) const {
    hierarchicalAllReduce<std::uint32_t, Sum>(over(h, messageBytes), thisGrid(), count);
  }
};

// Calls one behind the other by each schedule in turn, with new data where the last one's were: what arrives too early
// would lie in a sum.
constexpr auto scheduleCount = static_cast<std::uint32_t>(nodeSchedules.size());
struct EveryScheduleKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t count, unsigned* wrong) const {
    DeviceTeam const local(h.local);
    auto const grid = thisGrid();
    auto* const data = reinterpret_cast<std::uint32_t*>(h.data.bases[h.local.rank]);
    auto const ranks = static_cast<std::uint32_t>(h.size()), own = static_cast<std::uint32_t>(h.rank());
    for (std::uint32_t round = 0; round < 2 * scheduleCount; ++round) {
      for (auto i = grid.rank(); i < count; i += grid.size()) data[i] = round * 1000 + own + i % 7;
      gridBarrier(local, grid);
      hierarchicalAllReduce<std::uint32_t, Sum>(h, grid, count, static_cast<NodeSchedule>(round % scheduleCount));
      gridBarrier(local, grid);
      for (auto i = grid.rank(); i < count; i += grid.size()) {
        if (data[i] == ranks * (round * 1000 + i % 7) + ranks * (ranks - 1) / 2) continue;
        fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
      }
      gridBarrier(local, grid);
    }
  }
};

// Calls one behind the other: sums to each root, in two exchanges where there are three nodes and in one; then parts to
// each root and back, each time over what was there before.
struct RootedKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t count, unsigned* wrong) const {
    DeviceTeam const local(h.local);
    auto const grid = thisGrid();
    auto* const data = reinterpret_cast<std::uint32_t*>(h.data.bases[h.local.rank]);
    auto const ranks = static_cast<std::uint32_t>(h.size()), own = static_cast<std::uint32_t>(h.rank());
    auto const expect = [&](std::uint32_t found, std::uint32_t value) {
      if (found != value) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
    };
    for (std::uint32_t root = 0; root < ranks; ++root) {
      bool const isRoot = own == root;
      for (std::uint32_t again = 0; again < 2; ++again) {
        auto const base = root * 10 + again;
        for (auto i = grid.rank(); i < count; i += grid.size()) data[i] = base + own + i % 7;
        gridBarrier(local, grid);
        hierarchicalReduce<std::uint32_t, Sum>(over(h, again == 0 ? 0 : h.messageBytes), grid, count,
                                               static_cast<int>(root));
        gridBarrier(local, grid);
        for (auto i = grid.rank(); i < count; i += grid.size()) {
          expect(data[i], isRoot ? ranks * (base + i % 7) + ranks * (ranks - 1) / 2 : base + own + i % 7);
        }
        gridBarrier(local, grid);
      }
      for (auto i = grid.rank(); i < count; i += grid.size()) data[own * count + i] = root * 1000 + own * 100 + i;
      gridBarrier(local, grid);
      hierarchicalGather(h, grid, count * sizeof *data, static_cast<int>(root));
      gridBarrier(local, grid);
      for (auto i = grid.rank(); isRoot && i < ranks * count; i += grid.size()) {
        expect(data[i], root * 1000 + static_cast<std::uint32_t>(i / count * 100 + i % count));
        data[i] += 5000;
      }
      gridBarrier(local, grid);
      hierarchicalScatter(h, grid, count * sizeof *data, static_cast<int>(root));
      gridBarrier(local, grid);
      for (auto i = grid.rank(); i < count; i += grid.size()) {
        expect(data[own * count + i], 5000 + root * 1000 + own * 100 + i);
      }
      gridBarrier(local, grid);
    }
  }
};

void rooted(Rank& rank, std::uint64_t count, unsigned blocks) {
  HierarchicalTeam const team(
      rank.communicator,
      {.blocks = blocks, .bytes = (count * sizeof(std::uint32_t) + 16) * static_cast<unsigned>(rank.size)});
  GpuBuffer<unsigned> const wrong(rank.device, 1);
  wrong.fill(0);
  launch(rank.stream, {.blocks = blocks, .threads = 32}, RootedKernel{}, team.deviceHandle(), count, wrong.data());
  rank.synchronize();
  bool const right = copyToHost(wrong)[0] == 0;
  CHECK(right);
}

// One block: calls one behind the other, each with new data where the last one's were.
struct AgainKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t count, unsigned* wrong) const {
    auto const block = thisBlock();
    auto* const data = reinterpret_cast<std::uint32_t*>(h.data.bases[h.local.rank]);
    auto const expect = [&](std::uint64_t i, std::uint32_t value) {
      if (data[i] != value) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
    };
    auto const ranks = static_cast<std::uint32_t>(h.size()), own = static_cast<std::uint32_t>(h.rank());
    for (std::uint32_t round = 1; round <= 3; ++round) {
      for (auto i = block.rank(); i < count; i += block.size()) data[own * count + i] = round * 100 + own;
      block.sync();
      hierarchicalAllGather(h, thisGrid(), count * sizeof *data);
      // The own part may be overwritten at once.
      for (auto i = block.rank(); i < ranks * count; i += block.size()) {
        expect(i, round * 100 + static_cast<std::uint32_t>(i / count));
        data[i] = 0;
      }
      block.sync();
      for (std::uint32_t again = 0; again < 2; ++again) {
        for (auto i = block.rank(); i < count; i += block.size()) data[i] = round + own + again;
        block.sync();
        // In two exchanges where there are three nodes, then in one.
        hierarchicalAllReduce<std::uint32_t, Sum>(over(h, again == 0 ? 0 : h.messageBytes), thisGrid(), count);
        block.sync();
        for (auto i = block.rank(); i < count; i += block.size()) {
          expect(i, ranks * (round + again) + ranks * (ranks - 1) / 2);
        }
        block.sync();
      }
    }
  }
};

// Calls one behind the other: parts are added up, then a root's data goes to all, each time over what was there before.
struct ScatterAndSpreadKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint32_t* out, std::size_t count,
                                 unsigned* wrong) const {
    DeviceTeam const local(h.local);
    auto const grid = thisGrid();
    auto* const data = reinterpret_cast<std::uint32_t*>(h.data.bases[h.local.rank]);
    auto const ranks = static_cast<std::uint32_t>(h.size()), own = static_cast<std::uint32_t>(h.rank());
    auto const stride = hierarchicalPartBytes<std::uint32_t>(count) / sizeof(std::uint32_t);
    auto const expect = [&](std::uint32_t found, std::uint32_t value) {
      if (found != value) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
    };
    for (std::uint32_t round = 1; round <= 3; ++round) {
      for (std::uint32_t part = 0; part < ranks; ++part) {
        for (auto i = grid.rank(); i < count; i += grid.size()) data[part * stride + i] = round * 100 + part * 10 + own;
      }
      gridBarrier(local, grid);
      hierarchicalReduceScatter<std::uint32_t, Sum>(h, grid, View{out, count});
      gridBarrier(local, grid);
      for (auto i = grid.rank(); i < count; i += grid.size()) {
        expect(out[i], ranks * (round * 100 + own * 10) + ranks * (ranks - 1) / 2);
        out[i] = 0;
      }
      for (std::uint32_t root = 0; root < ranks; ++root) {
        for (auto i = grid.rank(); i < count; i += grid.size()) data[i] = round * 1000 + own;
        gridBarrier(local, grid);
        hierarchicalBroadcast(h, grid, count * sizeof *data, static_cast<int>(root));
        gridBarrier(local, grid);
        for (auto i = grid.rank(); i < count; i += grid.size()) expect(data[i], round * 1000 + root);
        gridBarrier(local, grid);
      }
    }
  }
};

void scatterAndSpread(Rank& rank, std::size_t count, unsigned blocks) {
  auto const bytes = hierarchicalPartBytes<std::uint32_t>(count) * static_cast<unsigned>(rank.size);
  HierarchicalTeam const team(rank.communicator, {.blocks = blocks, .bytes = bytes});
  GpuBuffer<std::uint32_t> const out(rank.device, count);
  GpuBuffer<unsigned> const wrong(rank.device, 1);
  wrong.fill(0);
  launch(rank.stream, {.blocks = blocks, .threads = 32}, ScatterAndSpreadKernel{}, team.deviceHandle(), out.data(),
         count, wrong.data());
  rank.synchronize();
  bool const right = copyToHost(wrong)[0] == 0;
  CHECK(right);
}

constexpr std::size_t largestPart = 21;
MSCCLPP_HOST_DEVICE std::size_t countOf(bool equal, unsigned from, unsigned to) {
  return equal ? largestPart : from == 1 && to == 0 ? 0 : (5 * from + 3 * to) % (largestPart + 1);
}
MSCCLPP_HOST_DEVICE std::uint32_t word(std::uint32_t round, unsigned from, unsigned to, std::size_t i) {
  return round * 100000 + from * 10000 + to * 1000 + static_cast<std::uint32_t>(i);
}

// Calls one behind the other, each with new data where the last one's were. `counts` and `offsets`: of the input's
// parts, then of the output's.
struct DealKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint32_t* in, std::uint32_t* out,
                                 std::size_t const* counts, std::size_t const* offsets, bool equal,
                                 unsigned* wrong) const {
    DeviceTeam const local(h.local);
    auto const grid = thisGrid();
    auto const ranks = static_cast<unsigned>(h.size()), own = static_cast<unsigned>(h.rank());
    for (std::uint32_t round = 1; round <= 3; ++round) {
      for (unsigned to = 0; to < ranks; ++to) {
        for (auto i = grid.rank(); i < counts[to]; i += grid.size()) in[offsets[to] + i] = word(round, own, to, i);
      }
      gridBarrier(local, grid);
      if (equal) {
        hierarchicalAllToAll(h, grid, in, EqualParts{largestPart}, out, EqualParts{largestPart});
      } else {
        hierarchicalAllToAll(h, grid, in, VariableParts{counts, offsets, largestPart}, out,
                             VariableParts{counts + ranks, offsets + ranks, largestPart});
      }
      gridBarrier(local, grid);
      for (unsigned from = 0; from < ranks; ++from) {
        for (auto i = grid.rank(); i < counts[ranks + from]; i += grid.size()) {
          auto& found = out[offsets[ranks + from] + i];
          if (found != word(round, from, own, i)) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
          found = 0;
        }
      }
    }
  }
};

void deal(Rank& rank, bool equal, unsigned blocks) {
  auto const ranks = static_cast<unsigned>(rank.size), own = static_cast<unsigned>(rank.rank);
  constexpr auto bytes = largestPart * sizeof(std::uint32_t);
  HierarchicalTeam const team(rank.communicator,
                              {.blocks = blocks, .bytes = (bytes + 7) / 8 * 8 * ranks, .allToAll = true});
  std::vector<std::size_t> counts, offsets;
  for (bool const output : {false, true}) {
    std::size_t at = 0;
    for (unsigned peer = 0; peer < ranks; ++peer) {
      counts.push_back(output ? countOf(equal, peer, own) : countOf(equal, own, peer));
      offsets.push_back(at);
      at += counts.back();
    }
  }
  GpuBuffer<std::uint32_t> const in(rank.device, largestPart * ranks), out(rank.device, largestPart * ranks);
  GpuBuffer<std::size_t> const countsThere(rank.device, counts.size()), offsetsThere(rank.device, offsets.size());
  GpuBuffer<unsigned> const wrong(rank.device, 1);
  copyToDevice(countsThere, std::span<std::size_t const>(counts));
  copyToDevice(offsetsThere, std::span<std::size_t const>(offsets));
  launch(rank.stream, {.blocks = blocks, .threads = 32}, DealKernel{}, team.deviceHandle(), in.data(), out.data(),
         countsThere.data(), offsetsThere.data(), equal, wrong.data());
  rank.synchronize();
  bool const right = copyToHost(wrong)[0] == 0;
  CHECK(right);
}

void onHosts(int ranks, int largest, std::function<void(Rank&)> const& body) {
  everySchedule({.ranks = ranks, .machine = {.devicesPerNode = largest}}, body, 3);
}
void onNodes(int nodes, int rails, std::function<void(Rank&)> const& body) { onHosts(nodes * rails, rails, body); }

// Each call with data of its own, so that what is late from one shows in the next.
void gather(Rank& rank, std::size_t bytes, unsigned blocks) {
  auto const size = static_cast<std::size_t>(rank.size);
  HierarchicalTeam const team(rank.communicator, {.blocks = blocks, .bytes = bytes * size});
  auto* const data = reinterpret_cast<std::uint8_t*>(team.data());
  for (std::uint64_t call = 1; call <= 2; ++call) {
    auto const mine = randomInput<std::uint8_t>(call, rank.rank, bytes);
    copyToDevice(rank.device, data + bytes * static_cast<std::size_t>(rank.rank), std::span(mine));
    launch(rank.stream, {.blocks = blocks, .threads = 32}, GatherKernel{}, team.deviceHandle(), bytes);
    rank.synchronize();
    std::vector<std::uint8_t> result(bytes * size), expected;
    copyToHost(rank.device, std::span(result), data);
    for (int r = 0; r < rank.size; ++r) {
      auto const part = randomInput<std::uint8_t>(call, r, bytes);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    bool const same = result == expected;
    CHECK(same);
  }
}

void reduce(Rank& rank, std::size_t count, unsigned blocks, std::uint64_t messageBytes = layout::usualMessageBytes) {
  // Whole payloads of 16 bytes are reduced; what is behind them is not.
  auto const end = (count + 3) / 4 * 4;
  HierarchicalTeam const team(rank.communicator, {.blocks = blocks, .bytes = (end + 32) * sizeof(std::uint32_t)});
  auto* const data = reinterpret_cast<std::uint32_t*>(team.data());
  copyToDevice(rank.device, data + end, std::span<std::uint32_t const>(std::vector<std::uint32_t>(32, 7)));
  for (std::uint64_t call = 1; call <= 2; ++call) {
    std::vector<std::uint32_t> sum(count, 0);
    for (int r = 0; r < rank.size; ++r) {
      auto const input = randomInput<std::uint32_t>(call, r, count);
      for (std::size_t i = 0; i < count; ++i) sum[i] += input[i];
      if (r == rank.rank) copyToDevice(rank.device, data, std::span<std::uint32_t const>(input));
    }
    launch(rank.stream, {.blocks = blocks, .threads = 32}, ReduceKernel{}, team.deviceHandle(), count, messageBytes);
    rank.synchronize();
    std::vector<std::uint32_t> result(count);
    copyToHost(rank.device, std::span(result), data);
    std::vector<std::uint32_t> behind(32);
    copyToHost(rank.device, std::span(behind), data + end);
    bool const same = result == sum && behind == std::vector<std::uint32_t>(32, 7);
    CHECK(same);
  }
}

// In two rounds and more, each of which every block has something of.
void inRounds(Rank& rank, Collective collective, unsigned blocks) {
  constexpr std::size_t part = 701;
  auto const ranks = static_cast<std::size_t>(rank.size), own = static_cast<std::size_t>(rank.rank);
  auto const& traits = traitsOf(collective);
  constexpr int root = 1;
  auto const wordOf = [&](std::size_t of, std::size_t i) { return static_cast<std::uint32_t>(of * 1000 + i); };
  auto const inCount = part * traits.in.partsOf(ranks), outCount = part * traits.out.partsOf(ranks);
  std::vector<std::uint32_t> input, expected;
  for (std::size_t i = 0; i < inCount; ++i) input.push_back(wordOf(own, i));
  for (std::size_t i = 0; i < outCount; ++i) {
    auto const from = collective == Collective::broadcast || collective == Collective::scatter ? std::size_t{root}
                      : collective == Collective::sendRecv ? (own + ranks - 1) % ranks
                                                           : i / part;
    bool const splits = collective == Collective::reduceScatter || collective == Collective::scatter;
    auto const at = (splits || collective == Collective::allToAll ? own * part : 0) + i % part;
    std::uint32_t sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) sum += wordOf(r, at);
    expected.push_back(reduces(collective) ? sum : wordOf(from, at));
  }
  HierarchicalTeam const team(rank.communicator, {.blocks = blocks, .bytes = 2048, .allToAll = true});
  GpuBuffer<std::uint32_t> const in(rank.device, inCount), out(rank.device, outCount);
  copyToDevice(in, std::span<std::uint32_t const>(input));
  bool const gets = traits.out.isUsed(rank.rank == root);
  collectives_impl::TwoLevelCall const call{.collective = collective,
                                            .op = reduces(collective) ? ReduceOp::sum : ReduceOp::none,
                                            .root = root,
                                            .in = in.data(),
                                            .out = gets ? out.data() : nullptr,
                                            .part = reduces(collective) ? part : part * sizeof(std::uint32_t)};
  LaunchShape const shape{.blocks = blocks, .threads = 32};
  for (int again = 0; again < 2; ++again) {
    if (reduces(collective)) {
      launch(rank.stream, shape, collectives_impl::TwoLevelReduceKernel<std::uint32_t>{}, call,
             DeviceHierarchy(team.deviceHandle()));
    } else {
      launch(rank.stream, shape, collectives_impl::TwoLevelMoveKernel{}, call, DeviceHierarchy(team.deviceHandle()));
    }
  }
  rank.synchronize();
  bool const right = !gets || copyToHost(out) == expected;
  CHECK(right);
}

}  // namespace

TEST_CASE("all-gather") {
  onNodes(2, 2, [](Rank& rank) { gather(rank, 40, 2); });
  onNodes(3, 1, [](Rank& rank) { gather(rank, 7, 1); });
  onNodes(1, 3, [](Rank& rank) { gather(rank, 100, 2); });
}

TEST_CASE("all-reduce") {
  onNodes(2, 2, [](Rank& rank) { reduce(rank, 612, 2); });
  onNodes(2, 3, [](Rank& rank) { reduce(rank, 3, 1); });
  onNodes(3, 1, [](Rank& rank) { reduce(rank, 9, 1); });
  onNodes(1, 2, [](Rank& rank) { reduce(rank, 33, 2); });
}

// Pieces of whole payloads: shorter ones, and none for the last nodes.
TEST_CASE("all-reduce in two exchanges") {
  onNodes(3, 2, [](Rank& rank) { reduce(rank, 230, 2, 0); });
  onNodes(4, 1, [](Rank& rank) { reduce(rank, 30, 1, 0); });
  onNodes(3, 1, [](Rank& rank) { reduce(rank, 3, 2, 0); });
}

TEST_CASE("all-reduce by every schedule, call after call") {
  struct Shape {
    int nodes, rails;
    std::uint64_t count;
    unsigned blocks;
  };
  // Nodes within a power of two and beyond it; fewer elements than there are pieces.
  for (auto const& shape :
       {Shape{1, 2, 30, 1}, Shape{2, 2, 150, 2}, Shape{3, 1, 40, 1}, Shape{4, 1, 90, 2}, Shape{5, 1, 9, 1}}) {
    onNodes(shape.nodes, shape.rails, [&](Rank& rank) {
      HierarchicalTeam const team(rank.communicator,
                                  {.blocks = shape.blocks, .bytes = (shape.count + 4) * sizeof(std::uint32_t)});
      GpuBuffer<unsigned> const wrong(rank.device, 1);
      wrong.fill(0);
      launch(rank.stream, {.blocks = shape.blocks, .threads = 32}, EveryScheduleKernel{}, team.deviceHandle(),
             shape.count, wrong.data());
      rank.synchronize();
      bool const right = copyToHost(wrong)[0] == 0;
      CHECK(right);
    });
  }
}

TEST_CASE("two exchanges where they save more than a message takes") {
  auto const direct = [](std::uint64_t nodes, std::uint64_t shard, std::uint64_t messageBytes) {
    return fastestSchedule(nodes, shard, messageBytes, 0, true);
  };
  CHECK(direct(1, 1 << 30, 0) == NodeSchedule::oneExchange);
  CHECK(direct(2, 1 << 30, 0) == NodeSchedule::oneExchange);
  CHECK(direct(3, 300, 199) == NodeSchedule::twoExchanges);
  CHECK(direct(3, 300, 200) == NodeSchedule::oneExchange);
  CHECK(direct(128, 4096, layout::usualMessageBytes) == NodeSchedule::twoExchanges);
  CHECK(direct(4, 4096, layout::usualMessageBytes) == NodeSchedule::oneExchange);
}

TEST_CASE("reduce-scatter, and broadcast from each root") {
  onNodes(2, 2, [](Rank& rank) { scatterAndSpread(rank, 41, 2); });
  onNodes(3, 1, [](Rank& rank) { scatterAndSpread(rank, 5, 1); });
  onNodes(1, 3, [](Rank& rank) { scatterAndSpread(rank, 30, 2); });
}

TEST_CASE("reduce, gather and scatter, of each root") {
  onNodes(2, 2, [](Rank& rank) { rooted(rank, 41, 2); });
  onNodes(3, 1, [](Rank& rank) { rooted(rank, 9, 1); });
  onNodes(1, 3, [](Rank& rank) { rooted(rank, 30, 2); });
}

TEST_CASE("the library's collectives, in rounds") {
  for (auto const collective : collectives) {
    if (collective == Collective::barrier) continue;
    onNodes(2, 2, [=](Rank& rank) { inRounds(rank, collective, 2); });
    onNodes(3, 1, [=](Rank& rank) { inRounds(rank, collective, 1); });
  }
}

TEST_CASE("hosts of different sizes, which are several nodes") {
  for (auto const collective : collectives) {
    if (collective != Collective::barrier) onHosts(3, 2, [=](Rank& rank) { inRounds(rank, collective, 1); });
  }
  onHosts(6, 4, [](Rank& rank) { inRounds(rank, Collective::allReduce, 1); });
}

TEST_CASE("all-to-all") {
  for (bool const equal : {true, false}) {
    onNodes(2, 2, [equal](Rank& rank) { deal(rank, equal, 2); });
    onNodes(3, 1, [equal](Rank& rank) { deal(rank, equal, 1); });
    onNodes(1, 3, [equal](Rank& rank) { deal(rank, equal, 2); });
  }
}

TEST_CASE("call after call in one kernel") {
  for (int const nodes : {2, 3}) {
    onNodes(nodes, nodes == 2 ? 2 : 1, [](Rank& rank) {
      constexpr std::uint64_t count = 12;
      HierarchicalTeam const team(
          rank.communicator, {.blocks = 1, .bytes = count * sizeof(std::uint32_t) * static_cast<unsigned>(rank.size)});
      GpuBuffer<unsigned> const wrong(rank.device, 1);
      launch(rank.stream, {.blocks = 1, .threads = 32}, AgainKernel{}, team.deviceHandle(), count, wrong.data());
      rank.synchronize();
      bool const right = copyToHost(wrong)[0] == 0;
      CHECK(right);
    });
  }
}

namespace {

struct RoomToReduceKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t count) const {
    ReduceKernel{}(h, count, h.messageBytes);
  }
};

// The inbox, which it does not use, is input and output.
struct RoomOfPartsKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t each) const {
    auto* const words = reinterpret_cast<std::uint32_t*>(h.inbox);
    hierarchicalAllToAll(h, thisGrid(), words, EqualParts{each}, words, EqualParts{each});
  }
};

struct RoomToSendKernel {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& h, std::uint64_t bytes) const {
    hierarchicalSendRecv(h, thisGrid(), h.inbox, h.inbox, bytes);
  }
};

template <class Kernel>
void checkRoom(std::uint64_t most, char const* refusal) {
  forEachRank(2, [&](Rank& rank) {
    HierarchicalTeam const team(rank.communicator, {.blocks = 1, .bytes = 256, .allToAll = true});
    auto const start = [&](std::uint64_t size) {
      launch(rank.stream, {.blocks = 1, .threads = 32}, Kernel{}, team.deviceHandle(), size);
      return reportOf(rank);
    };
    CHECK(start(most).empty());
    auto const text = start(most + 1);
    CHECK(contains(text, refusal));
    rank.communicator.bootstrap()->barrier();
  });
}

}  // namespace

TEST_CASE("one element more than there is room for") {
  checkRoom<GatherKernel>(128, "a view up to byte 258");
  checkRoom<RoomToReduceKernel>(64, "a view up to byte 272");
  checkRoom<RoomOfPartsKernel>(32, "a view up to byte 132");
  checkRoom<RoomToSendKernel>(256, "a view up to byte 257");
}
