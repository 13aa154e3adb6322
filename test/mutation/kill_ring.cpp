// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce around the ring, alone, call after call, and between collectives that use the same workspace.
#include <algorithm>
#include <vector>

#include "explored_collective.hpp"

using namespace mscclpp_test;

namespace {

using Short = StagePieces<2, 128>;
template <int Ranks = 0, class Op = Sum>
using Around = AllReduce<RingSchedule, Short, Op, Ranks>;

// Pieces: several of each block and share with ragged ends; fewer than blocks; shares that are empty; whole ones only.
CollectiveCase const ragged{.ranks = 3, .counts = {401, 5}, .blocks = 2, .threads = 32};
CollectiveCase const few{.ranks = 4, .counts = {97, 1}, .blocks = 3, .threads = 40};
CollectiveCase const whole{.ranks = 2, .counts = {256, 0, 128}, .blocks = 2, .threads = 32, .overlap = true};
CollectiveCase const shifted{.ranks = 3, .counts = {290}, .blocks = 1, .threads = 40, .inPlace = true, .offset = 1};
// A stage with room for a piece of a rank at most.
CollectiveCase const narrow{.ranks = 3, .counts = {200}, .blocks = 1, .threads = 32, .regionBytes = 384};

// A ring, packets, a ring: what one leaves behind must not disturb the next.
struct BetweenPackets {
  MSCCLPP_DEVICE void operator()(std::uint32_t const* in, std::uint32_t* out, std::size_t count, DeviceTeam const& team,
                                 layout::WindowHandle const& window) const {
    auto const ranks = static_cast<std::size_t>(team.size);
    SymmetricView<std::uint32_t> const middle(window, 0, count);
    for (int i = 0; i < 2; ++i) {
      Around<>{team}(thisGrid(), View{in, count}, middle);
      thisBlock().sync();
      AllGather<OneExchange, PacketTransport<LL16>>{team}(
          thisGrid(), View<std::uint32_t const>{middle.at(team.rank), count}, View{out, ranks * count});
      thisBlock().sync();
    }
  }
};

}  // namespace

TEST_CASE("around the ring") {
  explored<Around<>, std::uint32_t>(ragged);
  explored<Around<>, std::uint32_t>(few);
  explored<Around<2>, std::uint32_t>(whole);
  explored<Around<>, std::uint32_t>(shifted);
  explored<Around<>, std::uint32_t>(narrow);
  explored<Around<0, Max>, float>(ragged);
  explored<Around<0, Avg>, float>(few);
  // Pieces as long as their slots, which end with a thread's first access of two.
  explored<AllReduce<RingSchedule, StagePieces<2, 512>, Sum>, std::uint32_t>(
      {.ranks = 3, .counts = {1536}, .blocks = 2, .threads = 32});
  explored<Around<>, std::uint32_t>({.ranks = 1, .counts = {300}, .blocks = 2, .threads = 32}, 1);
}

TEST_CASE("between packets") {
  for (std::size_t const count : {20, 130}) {
    everySchedule(3, [&](Rank& rank) {
      auto const ranks = static_cast<std::size_t>(rank.size);
      Team const team(rank.communicator,
                      merge(Around<>::requirement(3, 1, 64), PacketTransport<LL16>::requirement(1, 64, 3)));
      Buffers<std::uint32_t> inputs;
      for (int r = 0; r < rank.size; ++r) inputs.push_back(randomInput<std::uint32_t>(4, r, count));
      GpuBuffer<std::uint32_t> const in(rank.device, count), middle(rank.device, count);
      GpuBuffer<std::uint32_t> const out(rank.device, ranks * count);
      MemoryWindow const window(rank.communicator, middle.data(), middle.bytes());
      copyToDevice(in, std::span<std::uint32_t const>(inputs[static_cast<std::size_t>(rank.rank)]));
      launch(rank.stream, {.blocks = 1, .threads = 64}, BetweenPackets{}, in.data(), out.data(), count,
             team.deviceHandle(), window.deviceHandle());
      rank.synchronize();
      auto const sum = Meaning<Around<>>::result(inputs, rank.rank, 0);
      CHECK(countDifferent(copyToHost(out), concatenate(Buffers<std::uint32_t>(ranks, sum))) == 0);
    });
  }
}

TEST_CASE("a stage that is too small is refused") {
  forEachRank(2, [](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 1, .stageBytes = 128});
    GpuBuffer<std::uint32_t> const data(rank.device, 64);
    MemoryWindow const window(rank.communicator, data.data(), data.bytes());
    launch(rank.stream, {.blocks = 1, .threads = 32}, DirectKernel<Around<>, std::uint32_t>{}, data.data(), data.data(),
           std::size_t{64}, 0, team.deviceHandle(), window.deviceHandle(), window.deviceHandle());
    auto const text = reportOf(rank);
    CAPTURE(text);
    CHECK(contains(text, "256"));
    CHECK(contains(text, "128"));
    rank.communicator.bootstrap()->barrier();
  });
}
