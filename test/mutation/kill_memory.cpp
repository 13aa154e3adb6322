// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces by plain stores and signals, with barriers of the team between them.
#include "kill_collective.hpp"
#include "mscclpp/device/barrier.hpp"

using namespace mscclpp_test;

TEST_CASE("one-shot by memory") { exploreAlgorithm<"oneshot_memory">(); }
TEST_CASE("two-shot by memory") { exploreAlgorithm<"twoshot_memory">(); }
TEST_CASE("launches that overlap") { exploreOverlap<"twoshot_memory">(); }

namespace {

// Different collectives of one team in one kernel.
struct ChainKernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(grid, View{in, count}, View{out, count});
    AllReduce<TwoShot, MemoryTransport<2>, Sum>{team}(grid, View{in, count}, View{out + count, count});
    teamBarrier(team, grid);
    AllReduce<TwoShot, PacketTransport<LL16>, Sum>{team}(grid, View{in, count}, View{out + 2 * count, count});
    AllReduce<OneShot, MemoryTransport<2>, Sum>{team}(grid, View{in, count}, View{out + 3 * count, count});
  }
};

}  // namespace

TEST_CASE("collectives of one team follow each other") {
  constexpr std::size_t count = 300;
  constexpr int ranks = 3;
  everySchedule(ranks, [&](Rank& rank) {
    Team team(rank.communicator, {.blocks = 3, .packetBytes = 1 << 12, .lineBytes = 0, .stageBytes = 1 << 12});
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<float>(7, r, count));
    auto const sum = reduceInRankOrder<float, Sum>(inputs);
    std::vector<float> expected;
    for (int i = 0; i < 4; ++i) expected.insert(expected.end(), sum.begin(), sum.end());
    GpuBuffer<float> in(rank.device, count);
    GpuBuffer<float> out(rank.device, 4 * count);
    copyToDevice(in, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
    for (unsigned blocks : {1u, 3u, 2u}) {
      out.fill(0);
      launch(rank.stream, {.blocks = blocks, .threads = 32}, ChainKernel{}, in.data(), out.data(), count,
             team.deviceHandle());
      rank.synchronize();
      CHECK(countDifferent(copyToHost(out), expected) == 0);
    }
  });
}
