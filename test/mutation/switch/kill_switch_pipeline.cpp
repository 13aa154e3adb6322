// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce through the switch in a pipeline.
#include "explored.hpp"
#include "support/collective.hpp"

using namespace mscclpp_test;

namespace {

template <class Roles>
using Pipeline = AllReduce<SwitchPipeline<Roles>, SwitchStage<2>, Sum>;

template <class Roles>
void explored(CollectiveCase const& test) {
  everySchedule(
      test.ranks, [&](Rank& rank) { checkCollectiveRank<Pipeline<Roles>, float>(rank, test); }, 1);
}

// One after the other on one team, in one kernel: each leaves the workspace as the next needs it. The epilogue may look
// up something with its index.
template <class Roles>
struct MixedKernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    View<float const> const from{in, count};
    auto const doubled = [count](auto v, std::uint64_t index) {
      if (index >= count) arch::trap("an epilogue was asked past the end");
      return v + v;
    };
    Pipeline<Roles>{team}(grid, from, View{out, count}, doubled);
    AllReduce<OneShot, MemoryTransport<1>, Sum>{team}(grid, from, View{out + count, count});
    Pipeline<Roles>{team}(grid, from, View{out + 2 * count, count}, doubled);
  }
};

template <class Roles>
void mixed(LaunchShape const& shape) {
  constexpr int ranks = 2;
  constexpr std::size_t count = 203;
  everySchedule(
      ranks,
      [&](Rank& rank) {
        Team const team(rank.communicator, {.blocks = shape.blocks, .stageBytes = 256, .multicast = 1});
        std::vector<std::vector<float>> inputs;
        for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<float>(9, r, count));
        GpuBuffer<float> const in(rank.device, count), out(rank.device, 3 * count);
        copyToDevice(in, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
        launch(rank.stream, shape, MixedKernel<Roles>{}, in.data(), out.data(), count, team.deviceHandle());
        rank.synchronize();
        auto const sums = reduceInRankOrder<float, Sum>(inputs);
        std::vector<float> expected;
        for (float const factor : {2.0f, 1.0f, 2.0f}) {
          for (float const sum : sums) expected.push_back(factor * sum);
        }
        CHECK(countDifferent(copyToHost(out), expected) == 0);
      },
      2);
}

}  // namespace

TEST_CASE("warps of a block") {
  // Four chunks; an incomplete warp that has no part.
  explored<WarpRoles>({.ranks = 3, .counts = {203, 0, 5}, .blocks = 1, .threads = 100, .regionBytes = 256});
  explored<WarpRoles>({.ranks = 2, .counts = {130}, .blocks = 2, .threads = 96, .overlap = true, .regionBytes = 128});
}

TEST_CASE("blocks of a grid") {
  // A block to spare; chunks of 40 accesses, of which the threads do 16 at a time.
  explored<BlockRoles>({.ranks = 2, .counts = {643, 0, 5}, .blocks = 7, .threads = 8, .regionBytes = 640});
  explored<BlockRoles>({.ranks = 2, .counts = {201}, .blocks = 6, .threads = 32, .inPlace = true, .regionBytes = 128});
}

TEST_CASE("one kernel, with another collective in between") {
  mixed<WarpRoles>({.blocks = 2, .threads = 96});
  mixed<BlockRoles>({.blocks = 3, .threads = 32});
}

TEST_CASE("launches that a pipeline refuses") {
  auto const refusal = [](auto kernel, LaunchShape const& shape, std::uint64_t stageBytes) {
    std::string text;
    forEachRank(1, [&](Rank& rank) {
      Team const team(rank.communicator, {.blocks = 4, .stageBytes = stageBytes, .multicast = 1});
      GpuBuffer<float> const buffer(rank.device, 192);
      launch(rank.stream, shape, kernel, buffer.data(), buffer.data() + 96, std::size_t{32}, team.deviceHandle());
      text = reportOf(rank);
    });
    return text;
  };
  using Warps = AllReduceKernel<Pipeline<WarpRoles>, float>;
  using Blocks = AllReduceKernel<Pipeline<BlockRoles>, float>;
  CHECK(refusal(Warps{}, {.blocks = 1, .threads = 96}, 128).empty());
  CHECK(contains(refusal(Warps{}, {.blocks = 1, .threads = 95}, 128), "blocks of 95 threads: at least 96 are needed"));
  CHECK(contains(refusal(Warps{}, {.blocks = 1, .threads = 96}, 0), "a workspace region of 0 bytes"));
  CHECK(refusal(Blocks{}, {.blocks = 3, .threads = 32}, 128).empty());
  CHECK(contains(refusal(Blocks{}, {.blocks = 2, .threads = 32}, 128), "a grid of 2 blocks: at least 3 are needed"));
}
