// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce in the user's kernel: chains of collectives, epilogues, refusals.
#include "mscclpp/algorithms/collective/allreduce.hpp"

#include <string>
#include <vector>

#include "mscclpp/device/barrier.hpp"
#include "support/allreduce.hpp"
#include "support/epilogue.hpp"

using namespace mscclpp_test;

namespace {

// Different collectives of one team follow each other in one kernel, with different counts.
struct ChainKernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(grid, View{in, count}, View{out, count});
    AllReduce<TwoShot, PacketTransport<LL128>, Sum>{team}(grid, View{in, std::size_t{3}},
                                                          View{out + count, std::size_t{3}});
    AllReduce<TwoShot, MemoryTransport<2>, Max>{team}(grid, View{in, count}, View{out + count + 3, count});
    AllReduce<OneShot, PacketTransport<LL16>, Avg>{team}(grid, View{in, count}, View{out + 2 * count + 3, count});
    teamBarrier(team, grid);
    AllReduce<TwoShot, PacketTransport<LL16>, Min>{team}(grid, View{in, count}, View{out + 3 * count + 3, count});
  }
};

}  // namespace

TEST_CASE("collectives follow each other in one kernel, launches differ in their grids") {
  constexpr std::size_t count = 700;
  constexpr int ranks = 4;
  if (!canRun(ranks)) return;
  forEachRank(ranks, [&](Rank& rank) {
    Team team(rank.communicator, {.blocks = 6, .packetBytes = 1 << 16, .lineBytes = 1 << 16, .stageBytes = 1 << 16});
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<float>(7, r, count));
    GpuBuffer<float> in(rank.device, count);
    GpuBuffer<float> out(rank.device, 4 * count + 3);
    copyToDevice(in, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
    auto expected = reduceInRankOrder<float, Sum>(inputs);
    auto const sums = expected;
    expected.insert(expected.end(), sums.begin(), sums.begin() + 3);
    for (auto const& part : {reduceInRankOrder<float, Max>(inputs), reduceInRankOrder<float, Avg>(inputs),
                             reduceInRankOrder<float, Min>(inputs)}) {
      expected.insert(expected.end(), part.begin(), part.end());
    }
    for (unsigned blocks : {1u, 6u, 2u, 5u, 1u, 3u}) {
      CAPTURE(blocks);
      out.fill(0);
      rank.meet();
      launch(rank.stream, {.blocks = blocks, .threads = 96}, ChainKernel{}, in.data(), out.data(), count,
             team.deviceHandle());
      rank.synchronize();
      CHECK(countDifferent(copyToHost(out), expected) == 0);
    }
  });
}

namespace {

struct EpilogueKernel {
  float scale;
  MSCCLPP_DEVICE void operator()(BFloat16 const* in, BFloat16* out, float const* residual, std::size_t count,
                                 bool twoShot, DeviceTeam const& team) const {
    auto const addResidual = [=, *this](auto values, std::uint64_t index) {
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < values.size; ++i) {
        values[i] = values[i] * scale + (index + i < count ? residual[index + i] : 0.0f);
      }
      return values;
    };
    if (twoShot) {
      AllReduce<TwoShot, PacketTransport<LL128>, Sum>{team}(thisGrid(), View{in, count}, View{out, count}, addResidual);
    } else {
      AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{in, count}, View{out, count}, addResidual);
    }
  }
};

}  // namespace

TEST_CASE("the epilogue runs in registers, with the index of its elements") {
  constexpr std::size_t count = 1234;
  constexpr int ranks = 4;
  if (!canRun(ranks)) return;
  forEachRank(ranks, [&](Rank& rank) {
    Team team(rank.communicator, {.blocks = 2, .packetBytes = 1 << 16, .lineBytes = 1 << 16, .stageBytes = 0});
    std::vector<std::vector<BFloat16>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<BFloat16>(9, r, count));
    auto const residual = randomInput<float>(10, rank.rank, count);  // differs from rank to rank
    GpuBuffer<BFloat16> in(rank.device, count);
    GpuBuffer<BFloat16> out(rank.device, count);
    GpuBuffer<float> added(rank.device, count);
    copyToDevice(in, std::span<BFloat16 const>(inputs[static_cast<std::size_t>(rank.rank)]));
    copyToDevice(added, std::span<float const>(residual));
    auto const totals = reduceInRankOrder<float, Sum>(inputs);
    for (bool twoShot : {false, true}) {
      rank.meet();
      launch(rank.stream, {.blocks = 2, .threads = 128}, EpilogueKernel{0.5f}, in.data(), out.data(), added.data(),
             count, twoShot, team.deviceHandle());
      rank.synchronize();
      std::vector<BFloat16> expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        // Two-shot sends the sum as an element before the epilogue sees it. 0.5 makes the product exact.
        auto const sum = twoShot ? static_cast<float>(BFloat16(totals[i])) : totals[i];
        expected[i] = BFloat16(sum * 0.5f + residual[i]);
      }
      CHECK(countDifferent(copyToHost(out), expected) == 0);
    }
  });
}

TEST_CASE("no epilogue is asked for an index past the end") {
  if (!canRun(3)) return;
  checkEpilogueIndices<AllReduce<OneShot, PacketTransport<LL8>, Sum>, AllReduce<OneShot, PacketTransport<LL128>, Sum>,
                       AllReduce<TwoShot, PacketTransport<LL8>, Sum>, AllReduce<TwoShot, PacketTransport<LL16>, Sum>,
                       AllReduce<TwoShot, PacketTransport<LL128>, Sum>, AllReduce<TwoShot, MemoryTransport<>, Sum>,
                       Reduce<OneExchange, PacketTransport<LL16>, Sum>,
                       Reduce<OneExchange, PacketTransport<LL128>, Sum>>();
}

namespace {

template <class Collective>
struct RefusedKernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t inputs, std::size_t outputs,
                                 DeviceTeam const& team) const {
    Collective{team}(thisGrid(), View{in, inputs}, View{out, outputs});
  }
};

// What rank 0's host is told of such a launch; `astray` bytes are added to the output's address.
template <class Collective>
std::string refusal(layout::WorkspaceRequirement const& need, unsigned blocks, std::size_t inCount,
                    std::size_t outCount, std::size_t astray = 0, int ranks = 1) {
  std::string text;
  forEachRank(ranks, [&](Rank& rank) {
    Team team(rank.communicator, need);
    GpuBuffer<float> buffer(rank.device, 1024);
    auto* const out = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(buffer.data()) + astray);
    launch(rank.stream, {.blocks = blocks, .threads = 32}, RefusedKernel<Collective>{}, buffer.data(), out, inCount,
           outCount, team.deviceHandle());
    try {
      rank.communicator.synchronize(rank.stream);
    } catch (Error const& error) {
      CHECK(error.code() == ErrorCode::invalidUsage);
      if (rank.rank == 0) text = error.what();
    }
    rank.communicator.bootstrap()->barrier();
  });
  return text;
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a launch that cannot work is refused with its numbers") {
  if (!canRun(1)) return;
  using Any = AllReduce<OneShot, PacketTransport<LL16>, Sum>;
  using Four = AllReduce<OneShot, PacketTransport<LL16>, Sum, 4>;
  layout::WorkspaceRequirement const need{.blocks = 2, .packetBytes = 1 << 14, .lineBytes = 0, .stageBytes = 0};
  CHECK(refusal<Any>(need, 2, 10, 10).empty());

  auto const blocks = refusal<Any>(need, 3, 10, 10);
  INFO(blocks);
  CHECK(contains(blocks, "3 blocks"));
  CHECK(contains(blocks, "2"));
  auto const size = refusal<Four>(need, 1, 10, 10);
  INFO(size);
  CHECK(contains(size, "4"));
  auto const counts = refusal<Any>(need, 1, 10, 11);
  INFO(counts);
  CHECK(contains(counts, "11"));
  auto const region = refusal<AllReduce<OneShot, PacketTransport<LL128>, Sum>>(need, 1, 10, 10);
  INFO(region);
  CHECK(contains(region, "workspace"));
  auto const alignment = refusal<Any>(need, 1, 10, 10, 2);
  INFO(alignment);
  CHECK(contains(alignment, "2 bytes past a multiple"));
}

#if !defined(__CUDACC__)
TEST_CASE("LL128 is refused where lines may tear") {
  layout::WorkspaceRequirement const need{.blocks = 1, .packetBytes = 0, .lineBytes = 1 << 14, .stageBytes = 0};
  using Lines = AllReduce<OneShot, PacketTransport<LL128>, Sum>;
  sim::install({.devices = 2, .linesArriveWhole = false});
  auto const text = refusal<Lines>(need, 1, 64, 64, 0, 2);
  sim::install({});
  INFO(text);
  CHECK(contains(text, "LL128 packets"));
}
#endif
