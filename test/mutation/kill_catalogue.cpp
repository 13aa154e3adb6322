// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is settled when collectives are compiled: lists of compositions, launch shapes, which buffers need windows. And
// calls without elements among calls that overlap.
#include <vector>

#include "explored.hpp"
#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/algorithms/kernels.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/team.hpp"
#include "support/reference.hpp"

using namespace mscclpp_test;

namespace {

using List =
    CompositionList<Composition<"first", PushSchedule, PeerMemory<1>, For<Collective::gather>>,
                    Composition<"second", PullSchedule, PeerMemory<2>, For<Collective::reduce, Collective::allReduce>>>;
static_assert(List::indexOf(Collective::gather, "first") == 0u);
static_assert(List::indexOf(Collective::allReduce, "second") == 1u);
static_assert(List::indexOf(Collective::gather, "second") == std::nullopt);
static_assert(List::indexOf(Collective::reduce, "third") == std::nullopt);

// 16 bytes a thread; blocks of 256, of 512 where 132 of those are too few.
consteval bool isShape(std::uint64_t threadsNeeded, unsigned blocks, unsigned threads, std::uint32_t most = 1000) {
  auto const shape = shapeFor<PullSchedule, PeerMemory<1>>(16 * threadsNeeded, most);
  return shape.blocks == blocks && shape.threads == threads;
}
static_assert(isShape(0, 1, 32));
static_assert(isShape(1, 1, 32));
static_assert(isShape(32, 1, 32));
static_assert(isShape(34, 1, 64));
static_assert(isShape(256, 1, 256));
static_assert(isShape(257, 2, 256));
static_assert(isShape(256 * 132, 132, 256));
static_assert(isShape(256 * 132 + 1, 67, 512));
static_assert(isShape(512 * 132 + 1, 132, 512));
static_assert(isShape(std::uint64_t{1} << 40, 132, 512));
static_assert(isShape(256 * 8 + 1, 5, 512, 8));
// Larger blocks where they are fewer than would be of use.
static_assert(shapeFor<OneExchange, MemoryTransport<1>>(std::uint64_t{1} << 30, 264).threads == 256);
static_assert(shapeFor<OneExchange, MemoryTransport<1>>(std::uint64_t{1} << 30, 263).threads == 512);
static_assert(shapeFor<OneExchange, MemoryTransport<1>>(16 * 256 * 8, 8).threads == 256);
static_assert(shapeFor<OneExchange, PacketTransport<LL128>>(std::uint64_t{1} << 30, 32).threads == 512);
static_assert(shapeFor<PullSchedule, PeerMemory<1>>(16 * 32 + 1, 8).threads == 64);
static_assert(shapeFor<OneShot, PacketTransport<LL128>>(15 * 32, 8).threads == 32);
static_assert(shapeFor<OneShot, PacketTransport<LL16>>(8 * 33, 8).threads == 64);

static_assert(shapeFor<SwitchPipeline<WarpRoles>, SwitchStage<1>>(1, 8).threads == WarpRoles::leastThreads);
static_assert(shapeFor<SwitchPipeline<WarpRoles>, SwitchStage<1>>(16 * 512 * 8, 8).threads == 512);
static_assert(shapeFor<SwitchPipeline<BlockRoles>, SwitchStage<1>>(std::uint64_t{1} << 30, 9).blocks == 9);
static_assert(shapeFor<SwitchPipeline<BlockRoles>, SwitchStage<1>>(std::uint64_t{1} << 30, 2).blocks == 3);

using Direct = PeerMemory<1>;
using Staged = MemoryTransport<1>;
static_assert(needsInWindow<AllReduce<PullSchedule, Direct, Sum>> && !needsInWindow<AllReduce<OneShot, Staged, Sum>>);
static_assert(needsOutWindow<AllReduce<PullSchedule, Direct, Sum>> && !needsOutWindow<AllReduce<OneShot, Staged, Sum>>);
static_assert(needsOutWindow<AllReduce<TwoShotPush, Staged, Sum>> &&
              !needsInWindow<AllReduce<TwoShotPush, Staged, Sum>>);
static_assert(needsInWindow<ReduceScatter<PullSchedule, Direct, Sum>> &&
              !needsInWindow<ReduceScatter<OneExchange, Staged, Sum>>);
static_assert(needsInWindow<Reduce<PullSchedule, Direct, Sum>> && !needsInWindow<Reduce<OneExchange, Staged, Sum>>);
static_assert(needsOutWindow<Reduce<PullSchedule, Direct, Sum>> && !needsOutWindow<Reduce<OneExchange, Staged, Sum>>);
static_assert(needsOutWindow<Reduce<TwoShotPush, Staged, Sum>> && !needsInWindow<Reduce<TwoShotPush, Staged, Sum>>);
static_assert(needsOutWindow<Broadcast<ChainSchedule, Direct>> && !needsInWindow<Broadcast<ChainSchedule, Direct>>);
static_assert(!needsOutWindow<Broadcast<ChainSchedule, StagePieces<>>> &&
              !needsInWindow<Broadcast<ChainSchedule, StagePieces<>>>);
static_assert(!needsOutWindow<Reduce<ChainSchedule, StagePieces<>, Sum>> &&
              !needsInWindow<Reduce<ChainSchedule, StagePieces<>, Sum>>);
static_assert(shapeFor<ChainSchedule, Direct>(std::uint64_t{1} << 30, 288).blocks == 132);
static_assert(shapeFor<ChainSchedule, StagePieces<>>(std::uint64_t{1} << 30, 288).blocks == 132);
static_assert(isRankOrder<OneShot>() && isRankOrder<TwoShotPush>() && isRankOrder<PullSchedule>());
static_assert(!isRankOrder<ChainSchedule>() && !isRankOrder<RingSchedule>() && !isRankOrder<SwitchSchedule>());
static_assert(!isRankOrder<SwitchPipeline<WarpRoles>>());
static_assert(needsInWindow<Broadcast<PushSchedule, Direct>> && !needsInWindow<Broadcast<OneExchange, Staged>>);
static_assert(needsOutWindow<Broadcast<PushSchedule, Direct>> && !needsOutWindow<Broadcast<OneExchange, Staged>>);
static_assert(needsOutWindow<AllGather<PushSchedule, Direct>> && !needsOutWindow<AllGather<OneExchange, Staged>>);
static_assert(needsOutWindow<AllToAll<PushSchedule, Direct>> && !needsOutWindow<AllToAll<OneExchange, Staged>>);
static_assert(needsOutWindow<Scatter<PushSchedule, Direct>> && !needsOutWindow<Scatter<OneExchange, Staged>>);
static_assert(needsOutWindow<Gather<PushSchedule, Direct>> && !needsOutWindow<Gather<OneExchange, Staged>>);

}  // namespace

// A kernel without elements may not end before the one ahead of it: the one behind it waits for no other.
TEST_CASE("a call without elements between two that depend on each other") {
  using Collective = AllReduce<OneShot, PacketTransport<LL16>, Sum>;
  everySchedule(2, [](Rank& rank) {
    constexpr std::size_t count = 8;
    Team const team(rank.communicator, Collective::requirement(2, 1, 32));
    GpuBuffer<std::uint32_t> const in(rank.device, count), between(rank.device, count), out(rank.device, count);
    copyToDevice(in, std::span<std::uint32_t const>(std::vector<std::uint32_t>(count, 3)));
    auto const call = [&](auto const& from, auto const& to, std::size_t elements) {
      launch(rank.stream, {.blocks = 1, .threads = 32, .overlapPrevious = true},
             CollectiveKernel<Collective, std::uint32_t>{}, from.data(), to.data(), elements, 0, team.deviceHandle());
    };
    call(in, between, count);
    call(in, between, 0);
    call(between, out, count);
    rank.synchronize();
    bool const same = copyToHost(out) == std::vector<std::uint32_t>(count, 12);
    CHECK(same);
  });
}

TEST_CASE("the same where the buffers lie") {
  using Collective = AllReduce<PullSchedule, PeerMemory<1>, Sum>;
  everySchedule(2, [](Rank& rank) {
    constexpr std::size_t count = 8;
    Team const team(rank.communicator, Collective::requirement(2, 1, 32));
    GpuBuffer<std::uint32_t> const in(rank.device, count), between(rank.device, count), out(rank.device, count);
    MemoryWindow const first(rank.communicator, in.data(), in.bytes());
    MemoryWindow const second(rank.communicator, between.data(), between.bytes());
    MemoryWindow const third(rank.communicator, out.data(), out.bytes());
    copyToDevice(in, std::span<std::uint32_t const>(std::vector<std::uint32_t>(count, 3)));
    auto const call = [&](auto const& from, auto const& to, std::size_t elements, auto const& fromWindow,
                          auto const& toWindow) {
      launch(rank.stream, {.blocks = 1, .threads = 32, .overlapPrevious = true},
             DirectKernel<Collective, std::uint32_t>{}, from.data(), to.data(), elements, 0, team.deviceHandle(),
             fromWindow.deviceHandle(), toWindow.deviceHandle());
    };
    call(in, between, count, first, second);
    call(in, between, 0, first, second);
    call(between, out, count, second, third);
    rank.synchronize();
    bool const same = copyToHost(out) == std::vector<std::uint32_t>(count, 12);
    CHECK(same);
  });
}
