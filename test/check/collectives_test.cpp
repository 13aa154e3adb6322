// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sweep over every collective: whatever the schedule, the shape, the count and the alignment, the checker says
// nothing and the results are right.
#include <random>
#include <string>
#include <vector>

#include "check/sweep.hpp"
#include "collectives/kernels/device/copy_engine.hpp"
#include "support/collective.hpp"
#include "support/messages.hpp"
#include "support/prologue.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

CollectiveCase caseOf(int ranks, std::uint64_t variant, bool inPlace) {
  std::mt19937_64 engine(variant * 7919 + 13);
  auto const below = [&](unsigned limit) { return static_cast<unsigned>(engine() % limit); };
  std::size_t const counts[] = {1, 7, 30, 61, 120, 0, 333};
  CollectiveCase test{.ranks = ranks, .counts = {}, .blocks = 1 + below(2), .threads = below(3) == 0 ? 48u : 32u};
  for (int call = 0; call < 2; ++call) test.counts.push_back(counts[below(7)] + below(3));
  test.inPlace = inPlace && below(3) == 0;
  test.overlap = below(2) == 0;
  test.offset = below(3) == 0 ? 1 : 0;
  test.regionBytes = 2048u * static_cast<unsigned>(ranks);
  test.root = static_cast<int>(below(static_cast<unsigned>(ranks)));
  test.seed = variant;
  return test;
}

template <class Collective, class T = std::uint8_t>
void explored(bool inPlace = true) {
  for (int ranks : {2, 3, 5, 8}) {
    sweep(ranks, [&](Rank& rank, std::uint64_t variant) {
      checkCollectiveRank<Collective, T>(rank, caseOf(rank.size, variant, inPlace));
    });
  }
}

}  // namespace

TEST_CASE_TEMPLATE("one exchange", Tr, PacketTransport<LL8>, PacketTransport<LL16>, PacketTransport<LL128>,
                   MemoryTransport<2>) {
  explored<AllGather<OneExchange, Tr>>();
  explored<AllToAll<OneExchange, Tr>>();
  explored<Broadcast<OneExchange, Tr>>();
  explored<Scatter<OneExchange, Tr>>();
  explored<Gather<OneExchange, Tr>>();
  explored<ReduceScatter<OneExchange, Tr, Sum>, BFloat16>();
  explored<Reduce<OneExchange, Tr, Sum>, BFloat16>();
}

TEST_CASE_TEMPLATE("broadcast and reduce in two exchanges", Tr, PacketTransport<LL8>, PacketTransport<LL128>,
                   MemoryTransport<2>) {
  explored<Broadcast<TwoShotRooted, Tr>>();
  explored<Reduce<TwoShotRooted, Tr, Sum>, BFloat16>();
}

using SmallBulk = BulkMemory<128, 3>;
TEST_CASE_TEMPLATE("push", Tr, PeerMemory<2>, SmallBulk) {
  explored<AllGather<PushSchedule, Tr>>();
  explored<AllToAll<PushSchedule, Tr>>(false);
  explored<Broadcast<PushSchedule, Tr>>();
  explored<Scatter<PushSchedule, Tr>>(false);
  explored<Gather<PushSchedule, Tr>>();
}

using ShortStagePieces = StagePieces<2, 128>;
TEST_CASE("from rank to rank") {
  explored<Broadcast<ChainSchedule, ShortPieces>>();
  explored<Broadcast<ChainSchedule, ShortStagePieces>>();
  explored<Reduce<ChainSchedule, ShortStagePieces, Sum>, BFloat16>();
}

using ShortRing = StagePieces<2, 128>;
TEST_CASE("around the ring") { explored<AllReduce<RingSchedule, ShortRing, Sum>, BFloat16>(); }

TEST_CASE("pull, and two-shot with pushed results") {
  explored<AllReduce<PullSchedule, PeerMemory<2>, Sum>, BFloat16>();
  explored<ReduceScatter<PullSchedule, PeerMemory<2>, Sum>, BFloat16>();
  explored<Reduce<PullSchedule, PeerMemory<2>, Sum>, BFloat16>();
  explored<AllReduce<TwoShotPush, MemoryTransport<2>, Sum>, BFloat16>();
  explored<Reduce<TwoShotPush, MemoryTransport<2>, Sum>, BFloat16>();
}

namespace {

template <class Collective, class In, class T>
void exploredWithPrologue() {
  for (int ranks : {2, 3}) {
    sweep(ranks, [&](Rank& rank, std::uint64_t variant) {
      checkPrologueRank<Collective, In, T>(rank, caseOf(rank.size, variant, sizeof(In) == sizeof(T)));
    });
  }
}

}  // namespace

TEST_CASE_TEMPLATE("with a prologue", Tr, PacketTransport<LL8>, PacketTransport<LL16>, PacketTransport<LL128>,
                   MemoryTransport<2>) {
  exploredWithPrologue<AllReduce<OneShot, Tr, Sum>, float, float>();
  exploredWithPrologue<AllReduce<TwoShot, Tr, Sum>, float, BFloat16>();
  exploredWithPrologue<ReduceScatter<OneExchange, Tr, Sum>, float, BFloat16>();
  exploredWithPrologue<Reduce<TwoShotRooted, Tr, Sum>, float, BFloat16>();
  exploredWithPrologue<Broadcast<TwoShotRooted, Tr>, float, BFloat16>();
  exploredWithPrologue<AllGather<OneExchange, Tr>, BFloat16, Float8E4M3>();
  exploredWithPrologue<AllToAll<OneExchange, Tr>, BFloat16, Float8E4M3>();
}

TEST_CASE("with a prologue, straight into the peers' buffers") {
  exploredWithPrologue<AllReduce<TwoShotPush, MemoryTransport<2>, Sum>, float, BFloat16>();
  exploredWithPrologue<Reduce<ChainSchedule, ShortStagePieces, Sum>, float, BFloat16>();
  exploredWithPrologue<Broadcast<ChainSchedule, ShortStagePieces>, float, BFloat16>();
  exploredWithPrologue<AllGather<PushSchedule, PeerMemory<2>>, BFloat16, Float8E4M3>();
  exploredWithPrologue<AllToAll<PushSchedule, PeerMemory<2>>, float, Half>();
}

namespace {

// The kernel ahead tells the parts, and lets the next one begin before that.
struct TellParts {
  MSCCLPP_DEVICE void operator()(std::size_t* counts, std::size_t* offsets, std::size_t each, int ranks) const {
    allowNextKernel();
    for (auto i = thisGrid().rank(); i < static_cast<unsigned>(ranks); i += thisGrid().size()) {
      counts[i] = each;
      offsets[i] = i * each;
    }
  }
};

struct MoveParts {
  MSCCLPP_DEVICE void operator()(int what, std::uint32_t const* in, std::uint32_t* out, VariableParts const& parts,
                                 std::size_t each, DeviceTeam const& team, layout::WindowHandle const& window) const {
    using Tr = PacketTransport<LL16>;
    auto const grid = thisGrid();
    auto const ranks = static_cast<std::size_t>(team.size);
    switch (what) {
      case 0:
        return AllGather<OneExchange, Tr>{team}(grid, View{in, each}, out, parts);
      case 1:
        return AllToAll<OneExchange, Tr>{team}(grid, in, parts, out, parts);
      case 2:
        return ReduceScatter<OneExchange, Tr, Sum>{team}(grid, in, parts, out);
      case 3:
        return Scatter<OneExchange, Tr>{team}(grid, in, parts, View{out, each}, 0);
      case 4:
        return Gather<OneExchange, Tr>{team}(grid, View{in, each}, out, parts, 0);
      default: {
        SymmetricView<std::uint32_t> const all(window, 0, each * ranks);
        return AllGather<PushSchedule, PeerMemory<2>>{team}(grid, View{in, each}, all, parts);
      }
    }
  }
};

}  // namespace

TEST_CASE("parts that the kernel ahead tells") {
  constexpr std::size_t each = 21;
  for (int what = 0; what < 6; ++what) {
    CAPTURE(what);
    sweep(2, [what, each = each](Rank& rank, std::uint64_t) {
      Team const team(rank.communicator, PacketTransport<LL16>::requirement(1, 32, 2));
      GpuBuffer<std::uint32_t> const in(rank.device, 2 * each), out(rank.device, 2 * each);
      GpuBuffer<std::size_t> const counts(rank.device, 2), offsets(rank.device, 2);
      MemoryWindow const window(rank.communicator, out.data(), out.bytes());
      in.fill(1);
      launch(rank.stream, {.blocks = 1, .threads = 32}, TellParts{}, counts.data(), offsets.data(), each, 2);
      launch(rank.stream, {.blocks = 1, .threads = 32, .overlapPrevious = true}, MoveParts{}, what, in.data(),
             out.data(), VariableParts{counts.data(), offsets.data(), each}, each, team.deviceHandle(),
             window.deviceHandle());
      rank.synchronize();
    });
  }
}

namespace {

struct AgreeKernel {
  MSCCLPP_DEVICE void operator()(std::uint64_t* out, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    for (std::uint64_t round = 0; round < 3; ++round) {
      auto const mine = (static_cast<std::uint64_t>(team.rank) * 7 + round) % 5;
      out[round * grid.size() + grid.rank()] = agreeOnLargest(team, grid, mine);
    }
  }
};

void agree(Rank& rank) {
  constexpr unsigned blocks = 2;
  constexpr unsigned threads = 40;
  auto const ranks = static_cast<std::uint32_t>(rank.size);
  Team const team(rank.communicator, agreementRequirement(ranks, blocks));
  GpuBuffer<std::uint64_t> const out(rank.device, 3 * blocks * threads);
  launch(rank.stream, {.blocks = blocks, .threads = threads}, AgreeKernel{}, out.data(), team.deviceHandle());
  rank.synchronize();
  auto const result = copyToHost(out);
  for (std::uint64_t round = 0; round < 3; ++round) {
    std::uint64_t largest = 0;
    for (std::uint64_t r = 0; r < ranks; ++r) largest = std::max(largest, (r * 7 + round) % 5);
    for (unsigned i = 0; i < blocks * threads; ++i) REQUIRE(result[round * blocks * threads + i] == largest);
  }
}

// Parts of all sizes, each rank knowing its own counts only.
struct UnevenKernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t const* counts, DeviceTeam const& team) const {
    auto const ranks = static_cast<std::size_t>(team.size);
    auto const grid = thisGrid();
    std::size_t const* const sendCounts = counts;
    std::size_t const* const sendOffsets = counts + ranks;
    std::size_t const* const receiveCounts = counts + 2 * ranks;
    std::size_t const* const receiveOffsets = counts + 3 * ranks;
    std::size_t mine = 0;
    for (std::size_t r = 0; r < ranks; ++r) mine = sendCounts[r] > mine ? sendCounts[r] : mine;
    auto const largest = agreeOnLargest(team, grid, mine);
    AllToAll<OneExchange, PacketTransport<LL16>>{team}(grid, in, VariableParts{sendCounts, sendOffsets, largest}, out,
                                                       VariableParts{receiveCounts, receiveOffsets, largest});
  }
};

// What the i-th element from a to b is.
float elementFrom(int a, int b, std::size_t i) {
  return static_cast<float>(static_cast<std::size_t>(1000 * a + 100 * b) + i);
}

std::size_t countFrom(int a, int b, std::uint64_t variant) {
  return static_cast<std::size_t>((static_cast<unsigned>(a) * 31 + static_cast<unsigned>(b) * 17 + variant * 7) % 90);
}

void uneven(Rank& rank, std::uint64_t variant) {
  auto const ranks = static_cast<std::size_t>(rank.size);
  std::vector<std::size_t> table(4 * ranks);
  std::vector<float> input;
  std::vector<float> expected;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const peer = static_cast<int>(r);
    table[r] = countFrom(rank.rank, peer, variant);
    table[ranks + r] = input.size();
    for (std::size_t i = 0; i < table[r]; ++i) input.push_back(elementFrom(rank.rank, peer, i));
    table[2 * ranks + r] = countFrom(peer, rank.rank, variant);
    table[3 * ranks + r] = expected.size();
    for (std::size_t i = 0; i < table[2 * ranks + r]; ++i) {
      expected.push_back(elementFrom(peer, rank.rank, i));
    }
  }
  constexpr unsigned blocks = 2;
  Team const team(rank.communicator, {.blocks = blocks, .packetBytes = 256 * ranks});
  GpuBuffer<float> const in(rank.device, input.size() + 1);
  GpuBuffer<float> const out(rank.device, expected.size() + 1);
  GpuBuffer<std::size_t> const counts(rank.device, table.size());
  copyToDevice(in, std::span<float const>(input));
  copyToDevice(counts, std::span<std::size_t const>(table));
  launch(rank.stream, {.blocks = blocks, .threads = 32}, UnevenKernel{}, in.data(), out.data(), counts.data(),
         team.deviceHandle());
  rank.synchronize();
  std::vector<float> result(expected.size());
  copyToHost(std::span<float>(result), out);
  REQUIRE(countDifferent(result, expected) == 0);
}

// The host's part of the copy engines' collectives: who waits for whom, in which stream.
void copyEngines(Rank& rank, std::uint64_t variant) {
  using namespace mscclpp::collectives_impl;
  auto const ranks = static_cast<std::size_t>(rank.size);
  auto const count = 200 + variant % 7;
  std::vector<std::vector<float>> inputs;
  for (int r = 0; r < rank.size; ++r) inputs.push_back(randomInput<float>(variant, r, count * ranks));
  Team const team(rank.communicator, {.blocks = 2, .stageBytes = 128 * ranks});
  GpuBuffer<float> const in(rank.device, count * ranks);
  GpuBuffer<float> const sums(rank.device, count * ranks);
  GpuBuffer<float> const parts(rank.device, count * ranks);
  GpuBuffer<float> const whole(rank.device, count * ranks);
  MemoryWindow const wholeWindow(rank.communicator, whole.data(), whole.bytes());
  MemoryWindow const sumsWindow(rank.communicator, sums.data(), sums.bytes());
  MemoryWindow const partsWindow(rank.communicator, parts.data(), parts.bytes());
  Stream const side(rank.device);
  copyToDevice(in, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
  KernelCall reduce{.stream = rank.stream,
                    .team = team.deviceHandle(),
                    .in = in.data(),
                    .out = sums.data(),
                    .count = count * ranks,
                    .outWindow = &sumsWindow.deviceHandle(),
                    .shape = {.blocks = 2, .threads = 32},
                    .sideStreams = &side};
  startAllReduceCopies<float, Sum, 0>(reduce);
  // In the same streams, with what the first has made.
  KernelCall move{.stream = rank.stream,
                  .team = team.deviceHandle(),
                  .in = sums.data(),
                  .out = parts.data(),
                  .count = count * sizeof(float),
                  .outWindow = &partsWindow.deviceHandle(),
                  .sideStreams = &side};
  startAllToAllCopies(move);
  // And back: each rank's first part is what the sums were.
  auto const root = static_cast<int>(variant) % rank.size;
  KernelCall gather = move;
  gather.in = parts.data();
  gather.out = whole.data();
  gather.root = root;
  gather.outWindow = &wholeWindow.deviceHandle();
  startGatherCopies(gather);
  // Out again by another rank, and to all.
  GpuBuffer<float> const own(rank.device, count);
  GpuBuffer<float> const all(rank.device, count * ranks);
  MemoryWindow const ownWindow(rank.communicator, own.data(), own.bytes());
  MemoryWindow const allWindow(rank.communicator, all.data(), all.bytes());
  KernelCall scatter = move;
  scatter.out = own.data();
  scatter.root = (root + 1) % rank.size;
  scatter.outWindow = &ownWindow.deviceHandle();
  startScatterCopies(scatter);
  KernelCall broadcast = move;
  broadcast.in = whole.data();
  broadcast.out = all.data();
  broadcast.count *= ranks;
  broadcast.root = root;
  broadcast.outWindow = &allWindow.deviceHandle();
  broadcastChunks(broadcast, broadcast.count / (1 + variant % 4));
  rank.synchronize();
  auto const totals = reduceInRankOrder<float, Sum>(inputs);
  REQUIRE(countDifferent(copyToHost(sums), totals) == 0);
  if (rank.rank == root) REQUIRE(countDifferent(copyToHost(whole), totals) == 0);
  std::vector<float> expected;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const first = totals.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank.rank) * count);
    expected.insert(expected.end(), first, first + static_cast<std::ptrdiff_t>(count));
  }
  REQUIRE(countDifferent(copyToHost(parts), expected) == 0);
  REQUIRE(countDifferent(copyToHost(own),
                         std::vector<float>(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(count))) ==
          0);
  REQUIRE(countDifferent(copyToHost(all), totals) == 0);
}

// Messages one behind the other in the same buffers, in chunks that go from rank to rank.
void broadcasts(Rank& rank, std::uint64_t variant) {
  using namespace mscclpp::collectives_impl;
  std::size_t const bytes = 1 + variant * 37 % 400;
  bool const inPlace = variant % 3 == 0;
  Team const team(rank.communicator, {.blocks = 1});
  GpuBuffer<std::uint8_t> const in(rank.device, bytes);
  GpuBuffer<std::uint8_t> const out(rank.device, bytes);
  auto const& result = inPlace ? in : out;
  MemoryWindow const window(rank.communicator, result.data(), result.bytes());
  Stream const side(rank.device);
  for (int message = 0; message < 2; ++message) {
    auto const root = static_cast<int>(variant + static_cast<std::uint64_t>(message)) % rank.size;
    auto const sent = randomInput<std::uint8_t>(variant, message, bytes);
    if (rank.rank == root) copyToDevice(in, std::span<std::uint8_t const>(sent));
    broadcastChunks({.stream = rank.stream,
                     .team = team.deviceHandle(),
                     .in = rank.rank == root ? in.data() : nullptr,
                     .out = result.data(),
                     .count = bytes,
                     .root = root,
                     .outWindow = &window.deviceHandle(),
                     .sideStreams = &side},
                    1 + variant * 53 % 150);
    rank.synchronize();
    REQUIRE(countDifferent(copyToHost(result), sent) == 0);
  }
}

}  // namespace

TEST_CASE("agreement on the largest number") {
  for (int ranks : {2, 3, 8}) sweep(ranks, [](Rank& rank, std::uint64_t) { agree(rank); });
}

TEST_CASE("all-to-all of parts whose counts only their two ranks know") {
  for (int ranks : {2, 3, 5}) sweep(ranks, uneven);
}

TEST_CASE("copy engines") {
  for (int ranks : {2, 3, 4}) sweep(ranks, copyEngines);
}

TEST_CASE("copy engines from rank to rank") {
  for (int ranks : {1, 2, 3, 5}) sweep(ranks, broadcasts);
}

namespace {

// Random patterns, several kernels long, with rings that go round. `engine` begins as the variant says, on all ranks.
void messages(Rank& rank, std::uint64_t variant, layout::PointToPointRequirement const& need, std::mt19937_64& engine,
              std::vector<std::int64_t> const& sizes) {
  auto const lines = variant % 3 != 0;
  PointToPoint const links(rank.communicator, need);
  std::vector<std::unique_ptr<MessageBuffers>> calls;
  for (std::uint64_t call = 0; call < 3; ++call) {
    auto const pattern = MessagePattern::random(rank.size, variant * 3 + call, sizes);
    calls.push_back(std::make_unique<MessageBuffers>(rank, pattern, call, engine() % 3 == 0 ? 1 : 0));
    LaunchShape const shape{.blocks = 2 + static_cast<unsigned>(call + static_cast<unsigned>(rank.rank)) % 3,
                            .threads = 32,
                            .overlapPrevious = variant % 2 == 0};
    auto handle = links.handleFor(calls.back()->messages);
    // The other format, on links that have carried none yet.
    if (!lines) handle.layout.lines = 0;
    if (lines) {
      launch(rank.stream, shape, MessageKernel<LL128>{}, handle, calls.back()->messages, 2);
    } else {
      launch(rank.stream, shape, MessageKernel<LL16>{}, handle, calls.back()->messages, 2);
    }
  }
  rank.synchronize();
  for (auto const& call : calls) call->check();
  // Its host looks at the last signals, for which nobody waits.
  for (int peer = 0; peer < rank.size; ++peer) REQUIRE(links.undelivered(peer) == 0);
}

}  // namespace

TEST_CASE("messages between pairs of ranks") {
  std::vector<std::int64_t> const sizes{0, 1, 100, 128, 300, 2000, 2600};
  for (int ranks : {2, 3, 5}) {
    sweep(ranks, [&](Rank& rank, std::uint64_t variant) {
      std::mt19937_64 engine(variant);
      layout::PointToPointRequirement const need{
          .lanes = 1 + static_cast<std::uint32_t>(engine() % 2),
          .slots = 1u << engine() % 3,
          .stageBytes = 128u << engine() % 3,
          .packetBytes = 1,
          .packetLimit = engine() % 2 == 0 ? 200u : 2200u,
          .stagesLater = variant % 2 == 0,
      };
      messages(rank, variant, need, engine, sizes);
    });
  }
}

TEST_CASE("messages between ranks of several nodes") {
  std::vector<std::int64_t> const sizes{0, 1, 127, 128, 300, 700};
  struct Nodes {
    int ranks;
    int largest;
  };
  for (auto const& nodes : {Nodes{2, 1}, Nodes{3, 2}, Nodes{4, 2}}) {
    sweep(nodes.ranks,
          [&](Rank& rank, std::uint64_t variant) {
            std::mt19937_64 engine(variant);
            layout::PointToPointRequirement const need{
                .lanes = 2,
                .slots = 1u << engine() % 3,
                .stageBytes = 256,
                .packetBytes = 1,
                .packetLimit = 200,
                .stagesLater = variant % 2 == 0,
                .farLanes = 1 + static_cast<std::uint32_t>(engine() % 2),
                .farBytes = 128u << engine() % 2,
            };
            messages(rank, variant, need, engine, sizes);
          },
          {.devicesPerNode = nodes.largest});
  }
}
