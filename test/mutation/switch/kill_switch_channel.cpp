// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Channels through the switch, and what the switch can do with which types.
#include <string>
#include <vector>

#include "explored.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/switch_channel.hpp"
#include "mscclpp/host/switch_channel.hpp"

using namespace mscclpp_test;

namespace {

template <class... T>
inline constexpr bool allMove = (multimemMoves<T> && ...);
static_assert(
    allMove<float, double, Half, BFloat16, Float8E4M3, Float8E5M2, std::int32_t, std::uint32_t, std::int64_t>);
static_assert(!multimemMoves<bool> && !multimemMoves<std::int8_t> && !multimemMoves<std::int16_t>);

// By loads, in the accumulators that there are.
static_assert(multimemLoadReduces<Half, Sum> && multimemLoadReduces<Half, Sum, Half> &&
              multimemLoadReduces<Half, Sum, float>);
static_assert(multimemLoadReduces<Float8E4M3, Sum, Half> && !multimemLoadReduces<Float8E4M3, Sum, Float8E4M3>);
static_assert(!multimemLoadReduces<std::int16_t, Sum, std::int16_t> && !multimemLoadReduces<float, Sum, Half>);
static_assert(multimemLoadReduces<Half, Min> && multimemLoadReduces<Float8E5M2, Max>);
static_assert(multimemLoadReduces<std::int32_t, Min> && !multimemLoadReduces<float, Min>);

// Into memory.
static_assert(multimemStoreReduces<Half, Sum> && multimemStoreReduces<float, Sum> &&
              multimemStoreReduces<double, Sum> && multimemStoreReduces<std::int64_t, Sum>);
static_assert(!multimemStoreReduces<Float8E4M3, Sum> && !multimemStoreReduces<std::int16_t, Sum>);
static_assert(multimemStoreReduces<std::int32_t, Max> && !multimemStoreReduces<Half, Max> &&
              !multimemStoreReduces<float, Max> && !multimemStoreReduces<std::int32_t, Prod>);

// 4 to 16 bytes, but one integer or one double.
static_assert(!multimemHasWidth<Half, 1> && multimemHasWidth<Half, 2> && multimemHasWidth<Half, 8> &&
              !multimemHasWidth<Half, 16>);
static_assert(multimemHasWidth<float, 1> && !multimemHasWidth<float, 3> && multimemHasWidth<float, 4>);
static_assert(multimemHasWidth<double, 1> && !multimemHasWidth<double, 2> && !multimemHasWidth<std::int32_t, 2>);
static_assert(!multimemHasWidth<Float8E4M3, 2> && multimemHasWidth<Float8E4M3, 4> && multimemHasWidth<Float8E5M2, 16>);

struct Channel {
  Channel(Rank& rank, std::size_t words)
      : memory(rank.device, words, MemoryKind::shareable), channel(rank.communicator, memory.data(), memory.bytes()) {}

  SwitchChannelDeviceHandle handle() const { return channel.deviceHandle(); }

  GpuBuffer<std::uint32_t> memory;
  SwitchChannel channel;
};

// Every round each thread writes a word, reads the sum of everybody's, and rank 0 hands out another.
struct RoundsKernel {
  MSCCLPP_DEVICE void operator()(SwitchChannelDeviceHandle const& channel, unsigned rounds, unsigned* wrong) const {
    auto const block = thisBlock();
    auto* const own = reinterpret_cast<std::uint32_t*>(channel.own);
    auto const ranks = static_cast<unsigned>(channel.semaphore.ranks);
    auto const meet = [&] {
      block.sync();
      if (block.rank() == 0) {
        channel.signal();
        channel.wait();
      }
      block.sync();
    };
    for (unsigned round = 0; round < rounds; ++round) {
      auto const mine = 2 * round * block.size() + block.rank();
      auto const given = mine + block.size();
      own[mine] = mine;
      meet();
      if (channel.reduce<std::uint32_t>(mine) != ranks * mine) ++*wrong;
      if (channel.rank == 0) channel.broadcast(given, u32x1{{given}});
      meet();
      if (own[given] != given) ++*wrong;
      // Counts, and orders nothing.
      if (block.rank() == 0) {
        channel.relaxedSignal();
        channel.relaxedWait();
      }
    }
  }
};

// Accesses that nothing orders. Each may meet each.
struct UnorderedKernel {
  MSCCLPP_DEVICE void operator()(SwitchChannelDeviceHandle const& channel) const {
    auto* const words = reinterpret_cast<std::uint32_t*>(channel.multicast);
    (void)channel.reduce<std::uint32_t>(0);
    channel.broadcast(0, std::uint32_t{1});
    (void)channel.multimemLoadReduce(words);
    channel.multimemStore(2u, words);
    channel.multimemStoreReduce(3u, words);
  }
};

// Each rank's bytes to everybody, through the last part of the memory.
struct PacketsKernel {
  MSCCLPP_DEVICE void operator()(SwitchChannelDeviceHandle const& channel, std::uint8_t const* in, std::uint8_t* out,
                                 std::uint64_t bytes, std::uint64_t offset) const {
    auto const slots = LL16::slotsFor(bytes) * LL16::slotBytes;
    channel.broadcastPackets<LL16>(thisBlock(), offset + static_cast<unsigned>(channel.rank) * slots, in, bytes, 7);
    for (unsigned rank = 0; rank < static_cast<unsigned>(channel.semaphore.ranks); ++rank) {
      channel.unpackPackets<LL16>(thisBlock(), offset + rank * slots, out + rank * bytes, bytes, 7);
    }
  }
};

struct BeyondKernel {
  MSCCLPP_DEVICE void operator()(SwitchChannelDeviceHandle const& channel, unsigned call) const {
    std::uint8_t byte = 0;
    if (call == 0) (void)channel.reduce<f32x4>(4);
    if (call == 1) channel.broadcast(4, f32x4{});
    if (call == 2) channel.broadcastPackets<LL16>(thisThread(), 64, &byte, 1, 1);
    if (call == 3) channel.unpackPackets<LL16>(thisThread(), 64, &byte, 1, 1);
  }
};

}  // namespace

TEST_CASE("rounds of a channel") {
  everySchedule(2, [](Rank& rank) {
    constexpr unsigned rounds = 3;
    constexpr unsigned threads = 8;
    // Up to the last byte.
    Channel const channel(rank, rounds * 2 * threads);
    GpuBuffer<unsigned> const wrong(rank.device, 1);
    launch(rank.stream, {.blocks = 1, .threads = threads}, RoundsKernel{}, channel.handle(), rounds, wrong.data());
    rank.synchronize();
    CHECK(copyToHost(wrong)[0] == 0);
  });
}

TEST_CASE("accesses that nothing orders") {
  everySchedule(2, [](Rank& rank) {
    Channel const channel(rank, 1);
    launch(rank.stream, {.blocks = 1, .threads = 1}, UnorderedKernel{}, channel.handle());
    rank.synchronize();
  });
}

TEST_CASE("packets to all") {
  everySchedule(2, [](Rank& rank) {
    constexpr std::uint64_t bytes = 100;
    constexpr std::uint64_t offset = 64;
    Channel const channel(rank, (offset + 2 * LL16::slotsFor(bytes) * LL16::slotBytes) / 4);
    GpuBuffer<std::uint8_t> const in(rank.device, bytes), out(rank.device, 2 * bytes);
    in.fill(static_cast<unsigned char>(1 + rank.rank));
    launch(rank.stream, {.blocks = 1, .threads = 32}, PacketsKernel{}, channel.handle(), in.data(), out.data(), bytes,
           offset);
    rank.synchronize();
    auto const result = copyToHost(out);
    for (std::size_t i = 0; i < result.size(); ++i) CHECK(result[i] == 1 + i / bytes);
  });
}

TEST_CASE("ranges of a channel's memory") {
  forEachRank(2, [](Rank& rank) {
    Channel const channel(rank, 16);
    for (unsigned call = 0; call < 4; ++call) {
      launch(rank.stream, {.blocks = 1, .threads = 1}, BeyondKernel{}, channel.handle(), call);
      CHECK(contains(reportOf(rank), "a range up to byte 80 of a switch channel's memory, which has 64"));
    }
    rank.communicator.bootstrap()->barrier();
  });
}
