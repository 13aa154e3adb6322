// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives through the switch: types, operations, counts, alignments, rank counts, and what is refused.
#include <string>
#include <vector>

#include "support/collective.hpp"
#include "support/switch.hpp"

using namespace mscclpp_test;

namespace {

// A real switch adds in an order of its own, so there only integers come out the same to the bit.
template <class T>
inline constexpr bool exactHere = testedMachine == DeviceKind::sim || std::is_integral_v<T>;

template <class Collective, class T = std::uint8_t>
void check(CollectiveCase const& test) {
  if constexpr (exactHere<T>) {
    if (hasSwitch(test.ranks)) checkCollective<Collective, T>(test);
  }
}

// Every way to cut and place the elements. `threads`, `blocks`: the least that the schedule works with.
template <class Collective, class T>
void everyShape(unsigned threads = 32, unsigned blocks = 1, bool rooted = false) {
  check<Collective, T>({.counts = raggedCounts, .blocks = blocks + 1, .threads = threads});
  check<Collective, T>({.counts = {16, 4096, 1},
                        .blocks = blocks,
                        .threads = threads,
                        .overlap = true,
                        .root = rooted ? 2 : 0,
                        .seed = 2});
  check<Collective, T>({.counts = {333, 64}, .blocks = blocks, .threads = threads, .inPlace = true, .seed = 3});
  check<Collective, T>({.counts = {1, 900}, .blocks = blocks, .threads = threads + 4, .offset = 1, .seed = 4});
  check<Collective, T>({.counts = {1500, 50, 1500}, .blocks = blocks, .threads = threads, .regionBytes = 4096});
  for (int ranks : {1, 2, 5, 8, 16}) {
    check<Collective, T>(
        {.ranks = ranks, .counts = {257}, .blocks = blocks, .threads = threads, .root = rooted ? ranks - 1 : 0});
  }
}

template <template <class, class, class, int, class> class C, class S, class Tr>
void everyType(unsigned threads = 32, unsigned blocks = 1) {
  everyShape<C<S, Tr, Sum, 0, void>, BFloat16>(threads, blocks);
  everyShape<C<S, Tr, Sum, 0, void>, std::int32_t>(threads, blocks);
  CollectiveCase const some{.counts = {1, 700, 33}, .blocks = blocks, .threads = threads, .offset = 1};
  check<C<S, Tr, Sum, 4, void>, Half>(some);
  check<C<S, Tr, Sum, 0, void>, float>(some);
  check<C<S, Tr, Avg, 0, void>, float>(some);
  check<C<S, Tr, Sum, 0, void>, std::uint32_t>(some);
  check<C<S, Tr, Min, 0, void>, std::int32_t>(some);
  check<C<S, Tr, Max, 4, void>, std::uint32_t>(some);
  check<C<S, Tr, Sum, 0, void>, Float8E4M3>(some);
  check<C<S, Tr, Sum, 0, void>, Float8E5M2>(some);
}

// Of 8 bytes, which the packets with flags of 4 do not carry.
template <template <class, class, class, int, class> class C, class S, class Tr>
void wideTypes(unsigned threads = 32, unsigned blocks = 1) {
  CollectiveCase const some{.counts = {1, 700, 33}, .blocks = blocks, .threads = threads, .offset = 1};
  check<C<S, Tr, Sum, 0, void>, double>(some);
  check<C<S, Tr, Avg, 0, void>, double>(some);
  check<C<S, Tr, Sum, 0, void>, std::int64_t>(some);
  check<C<S, Tr, Min, 0, void>, std::int64_t>(some);
  check<C<S, Tr, Sum, 0, void>, std::uint64_t>(some);
  check<C<S, Tr, Max, 0, void>, std::uint64_t>(some);
}

}  // namespace

TEST_CASE("all-reduce by packets to all") {
  using Tr = SwitchPackets<LL8>;
  everyType<AllReduce, OneShot, Tr>();
  // Reduced by the ranks, so every operation is there.
  check<AllReduce<OneShot, Tr, Prod>, float>({.counts = {90}});
  check<AllReduce<OneShot, Tr, Max>, BFloat16>({.counts = {90}});
  check<AllReduce<OneShot, SwitchPackets<LL16>, Sum>, double>({.counts = {1, 90, 333}});
  everyShape<AllReduce<OneShot, SwitchPackets<LL16, 2>, Sum>, float>();
}

TEST_CASE("all-reduce where the buffers lie") {
  everyType<AllReduce, SwitchSchedule, SwitchMemory<2>>();
  wideTypes<AllReduce, SwitchSchedule, SwitchMemory<4>>();
}

TEST_CASE("all-reduce in a pipeline of warps") {
  everyType<AllReduce, SwitchPipeline<WarpRoles>, SwitchStage<1>>(96);
  wideTypes<AllReduce, SwitchPipeline<WarpRoles>, SwitchStage<2>>(128);
  // Two warps and more that reduce.
  check<AllReduce<SwitchPipeline<WarpRoles>, SwitchStage<1>, Sum>, std::int32_t>(
      {.ranks = 2, .counts = {20000}, .blocks = 1, .threads = 512});
}

TEST_CASE("all-reduce in a pipeline of blocks") {
  everyType<AllReduce, SwitchPipeline<BlockRoles>, SwitchStage<1>>(32, 3);
  wideTypes<AllReduce, SwitchPipeline<BlockRoles>, SwitchStage<2>>(32, 3);
  check<AllReduce<SwitchPipeline<BlockRoles>, SwitchStage<1>, Sum>, std::int32_t>(
      {.ranks = 3, .counts = {4000, 3}, .blocks = 7, .threads = 32});
}

TEST_CASE("reduce-scatter and reduce through the switch") {
  everyType<ReduceScatter, SwitchSchedule, SwitchMemory<2>>();
  wideTypes<ReduceScatter, SwitchSchedule, SwitchMemory<2>>();
  everyShape<Reduce<SwitchSchedule, SwitchMemory<2>, Sum>, BFloat16>(32, 1, true);
}

TEST_CASE("all-gather and broadcast through the switch") {
  everyShape<AllGather<SwitchSchedule, SwitchMemory<2>>, std::uint8_t>();
  everyShape<AllGather<SwitchSchedule, SwitchMemory<2>>, double>();
  everyShape<Broadcast<SwitchSchedule, SwitchMemory<2>>, std::uint8_t>(32, 1, true);
  everyShape<AllGather<OneExchange, SwitchPackets<LL8>>, std::uint8_t>();
  everyShape<Broadcast<OneExchange, SwitchPackets<LL8>>, std::uint8_t>(32, 1, true);
  everyShape<AllGather<OneExchange, SwitchPackets<LL16>>, std::uint8_t>();
}

namespace {

// One after the other on one team, in one kernel: each leaves the workspace as the next needs it.
struct Mixed {
  MSCCLPP_DEVICE void operator()(std::int32_t const* in, std::int32_t* out, std::size_t count,
                                 DeviceTeam const& team) const {
    auto const grid = thisGrid();
    View<std::int32_t const> const from{in, count};
    auto const to = [&](unsigned i) { return View<std::int32_t>{out + i * count, count}; };
    AllReduce<SwitchPipeline<BlockRoles>, SwitchStage<1>, Sum>{team}(grid, from, to(0));
    AllReduce<TwoShot, MemoryTransport<2>, Sum>{team}(grid, from, to(1));
    AllReduce<OneShot, SwitchPackets<LL8>, Sum>{team}(grid, from, to(2));
    AllReduce<OneShot, PacketTransport<LL8>, Sum>{team}(grid, from, to(3));
    AllReduce<SwitchPipeline<WarpRoles>, SwitchStage<1>, Sum>{team}(grid, from, to(4));
    AllReduce<SwitchPipeline<BlockRoles>, SwitchStage<1>, Sum>{team}(grid, from, to(5));
    AllReduce<OneShot, MemoryTransport<2>, Sum>{team}(grid, from, to(6));
  }
};

}  // namespace

TEST_CASE("with other collectives on one team") {
  constexpr int ranks = 4;
  constexpr std::size_t count = 3000;
  if (!hasSwitch(ranks)) return;
  forEachRank(ranks, [&](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 3, .packetBytes = 4096, .stageBytes = 4096, .multicast = 1});
    GpuBuffer<std::int32_t> const in(rank.device, count);
    GpuBuffer<std::int32_t> const out(rank.device, 7 * count);
    std::vector<std::vector<std::int32_t>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<std::int32_t>(9, r, count));
    copyToDevice(in, std::span<std::int32_t const>(inputs[static_cast<std::size_t>(rank.rank)]));
    launch(rank.stream, {.blocks = 3, .threads = 96}, Mixed{}, static_cast<std::int32_t const*>(in.data()), out.data(),
           count, DeviceTeam(team.deviceHandle()));
    rank.synchronize();
    auto const expected = reduceInRankOrder<std::int32_t, Sum>(inputs);
    auto const result = copyToHost(out);
    for (std::size_t i = 0; i < 7; ++i) {
      auto const first = result.begin() + static_cast<std::ptrdiff_t>(i * count);
      std::vector<std::int32_t> const part(first, first + static_cast<std::ptrdiff_t>(count));
      CHECK_MESSAGE(countDifferent(part, expected) == 0, "collective ", i);
    }
  });
}

namespace {

struct Scaled {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
    // The index is below the count, so a user may look up something with it.
    AllReduce<SwitchPipeline<WarpRoles>, SwitchStage<1>, Sum>{team}(
        thisGrid(), View<float const>{in, count}, View<float>{out, count}, [&](auto v, std::uint64_t index) {
          if (index >= count) arch::trap("an epilogue was asked past the end");
          return v * 2.0f + static_cast<float>(index / 4);
        });
  }
};

template <class Kernel>
std::string refusalOf(layout::WorkspaceRequirement const& need, LaunchShape const& shape, Kernel const& kernel) {
  std::string text;
  forEachRank(2, [&](Rank& rank) {
    Team const team(rank.communicator, need);
    GpuBuffer<float> const buffer(rank.device, 64);
    launch(rank.stream, shape, kernel, static_cast<float const*>(buffer.data()), buffer.data(), std::size_t{64},
           DeviceTeam(team.deviceHandle()));
    try {
      rank.communicator.synchronize(rank.stream);
    } catch (Error const& error) {
      if (rank.rank == 0) text = error.what();
    }
    rank.communicator.bootstrap()->barrier();
  });
  return text;
}

template <class S>
struct Pipelined {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
    AllReduce<SwitchPipeline<S>, SwitchStage<1>, Sum>{team}(thisGrid(), View<float const>{in, count},
                                                            View<float>{out, count});
  }
};

}  // namespace

TEST_CASE("an epilogue runs once for each element") {
  if (!exactHere<float> || !hasSwitch(3)) return;
  forEachRank(3, [&](Rank& rank) {
    constexpr std::size_t count = 1001;
    Team const team(rank.communicator, {.blocks = 2, .stageBytes = 1024, .multicast = 1});
    GpuBuffer<float> const in(rank.device, count);
    GpuBuffer<float> const out(rank.device, count);
    std::vector<float> const ones(count, 1.0f);
    copyToDevice(in, std::span<float const>(ones));
    launch(rank.stream, {.blocks = 2, .threads = 96}, Scaled{}, static_cast<float const*>(in.data()), out.data(), count,
           DeviceTeam(team.deviceHandle()));
    rank.synchronize();
    auto const result = copyToHost(out);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += result[i] != 6.0f + static_cast<float>(i / 4) ? 1 : 0;
    CHECK(wrong == 0);
  });
}

TEST_CASE("launches that cannot work are refused with a report") {
  if (!hasSwitch(2)) return;
  layout::WorkspaceRequirement const need{.blocks = 4, .stageBytes = 4096, .multicast = 1};
  auto const says = [](std::string const& text, char const* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  says(refusalOf(need, {.blocks = 1, .threads = 64}, Pipelined<WarpRoles>{}),
       "blocks of 64 threads: at least 96 are needed");
  says(refusalOf(need, {.blocks = 2, .threads = 32}, Pipelined<BlockRoles>{}),
       "a grid of 2 blocks: at least 3 are needed");
  says(refusalOf({.blocks = 4, .stageBytes = 4096}, {.blocks = 1, .threads = 96}, Pipelined<WarpRoles>{}),
       "made without multicast");
  says(refusalOf({.blocks = 4, .multicast = 1}, {.blocks = 1, .threads = 96}, Pipelined<WarpRoles>{}),
       "a workspace region of 0 bytes: at least 128 are needed");
}
