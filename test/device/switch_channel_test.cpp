// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Switch channels and multicast accesses: every type and width, orders, barriers, packets, and what is refused.
#include <string>
#include <type_traits>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/multimem.hpp"
#include "mscclpp/host/switch_channel.hpp"
#include "support/reference.hpp"
#include "support/switch.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

// Rank r reduces every ranks'th value of the channel's memory into `out`, and broadcasts it in place.
template <class T, unsigned N, class Op>
struct ReduceAndBroadcast {
  MSCCLPP_DEVICE void operator()(DeviceHandle<SwitchChannel> const& channel, T const* in, T* out,
                                 std::uint64_t values) const {
    using V = Vector<T, N>;
    auto const block = thisBlock();
    auto* const own = reinterpret_cast<T*>(channel.own);
    for (std::uint64_t i = block.rank(); i < values * N; i += block.size()) own[i] = in[i];
    block.sync();
    if (block.rank() == 0) {
      channel.signal();
      channel.wait();
    }
    block.sync();
    auto const ranks = static_cast<unsigned>(channel.semaphore.ranks);
    for (std::uint64_t i = block.rank(); i < values; i += block.size()) {
      if (i % ranks != static_cast<unsigned>(channel.rank)) continue;
      auto const total = channel.template reduce<V, Op>(i);
      channel.broadcast(i, total);
    }
    block.sync();
    if (block.rank() == 0) {
      channel.signal();
      channel.wait();
    }
    block.sync();
    for (std::uint64_t i = block.rank(); i < values * N; i += block.size()) out[i] = own[i];
  }
};

template <class T, unsigned N, class Op>
void reducesAndBroadcasts(int ranks) {
  if (!hasSwitch(ranks)) return;
  constexpr std::uint64_t values = 37;
  forEachRank(ranks, [&](Rank& rank) {
    std::vector<std::vector<T>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<T>(7, r, values * N));
    GpuBuffer<T> const in(rank.device, values * N);
    GpuBuffer<T> const out(rank.device, values * N);
    GpuBuffer<T> const memory(rank.device, values * N, MemoryKind::shareable);
    SwitchChannel const channel(rank.communicator, memory.data(), memory.bytes());
    copyToDevice(in, std::span<T const>(inputs[static_cast<std::size_t>(rank.rank)]));
    launch(rank.stream, {.blocks = 1, .threads = 48}, ReduceAndBroadcast<T, N, Op>{},
           DeviceHandle<SwitchChannel>(channel.deviceHandle()), in.data(), out.data(), values);
    rank.synchronize();
    std::vector<T> expected;
    using A = std::conditional_t<isSmallFloat<T>, float, T>;
    for (auto total : reduceInRankOrder<A, Op>(inputs)) expected.push_back(convertNumber<T>(total));
#if defined(__CUDACC__)
    // A switch may add in any order.
    if constexpr (!std::is_integral_v<T>) {
      auto const result = copyToHost(out);
      for (std::size_t i = 0; i < result.size(); ++i) {
        auto const tolerance = isSmallFloat<T> ? 0.3f : 1e-5f;
        CHECK(convertNumber<float>(result[i]) == doctest::Approx(convertNumber<float>(expected[i])).epsilon(tolerance));
      }
      return;
    }
#endif
    CHECK(countDifferent(copyToHost(out), expected) == 0);
  });
}

}  // namespace

TEST_CASE("sums of every type and width") {
  for (int ranks : {2, 3, 8}) {
    reducesAndBroadcasts<float, 1, Sum>(ranks);
    reducesAndBroadcasts<float, 2, Sum>(ranks);
    reducesAndBroadcasts<float, 4, Sum>(ranks);
    reducesAndBroadcasts<double, 1, Sum>(ranks);
    reducesAndBroadcasts<Half, 2, Sum>(ranks);
    reducesAndBroadcasts<Half, 4, Sum>(ranks);
    reducesAndBroadcasts<Half, 8, Sum>(ranks);
    reducesAndBroadcasts<BFloat16, 2, Sum>(ranks);
    reducesAndBroadcasts<BFloat16, 4, Sum>(ranks);
    reducesAndBroadcasts<BFloat16, 8, Sum>(ranks);
    reducesAndBroadcasts<std::int32_t, 1, Sum>(ranks);
    reducesAndBroadcasts<std::uint32_t, 1, Sum>(ranks);
    reducesAndBroadcasts<std::int64_t, 1, Sum>(ranks);
    reducesAndBroadcasts<std::uint64_t, 1, Sum>(ranks);
  }
}

TEST_CASE("least and largest of every type that has them") {
  reducesAndBroadcasts<std::int32_t, 1, Min>(4);
  reducesAndBroadcasts<std::uint32_t, 1, Max>(4);
  reducesAndBroadcasts<std::int64_t, 1, Max>(4);
  reducesAndBroadcasts<std::uint64_t, 1, Min>(4);
  reducesAndBroadcasts<Half, 8, Min>(4);
  reducesAndBroadcasts<Half, 2, Max>(4);
  reducesAndBroadcasts<BFloat16, 4, Max>(4);
  reducesAndBroadcasts<BFloat16, 8, Min>(4);
}

#if !defined(__CUDACC__)
// Code for one generation alone may hold them.
TEST_CASE("FP8 of every width") {
  for (int ranks : {2, 5}) {
    reducesAndBroadcasts<Float8E4M3, 4, Sum>(ranks);
    reducesAndBroadcasts<Float8E4M3, 8, Sum>(ranks);
    reducesAndBroadcasts<Float8E4M3, 16, Max>(ranks);
    reducesAndBroadcasts<Float8E5M2, 4, Min>(ranks);
    reducesAndBroadcasts<Float8E5M2, 8, Sum>(ranks);
    reducesAndBroadcasts<Float8E5M2, 16, Sum>(ranks);
  }
}
#endif

namespace {

// Every rank adds its number, and 10 times it, to two words of everybody.
template <class T, unsigned N>
struct AddToAll {
  MSCCLPP_DEVICE void operator()(DeviceHandle<SwitchChannel> const& channel, std::uint64_t rounds) const {
    Vector<T, N> mine;
    for (unsigned i = 0; i < N; ++i) mine[i] = convertNumber<T>(static_cast<float>((i + 1) * (channel.rank + 1u)));
    auto* const place = reinterpret_cast<Vector<T, N>*>(channel.multicast);
    for (std::uint64_t i = 0; i < rounds; ++i) channel.multimemStoreReduce(mine, place);
    channel.signal();
    channel.wait();
  }
};

template <class T, unsigned N>
void addsUp() {
  constexpr int ranks = 4;
  if (!hasSwitch(ranks)) return;
  forEachRank(ranks, [&](Rank& rank) {
    GpuBuffer<T> const memory(rank.device, 16, MemoryKind::shareable);
    SwitchChannel const channel(rank.communicator, memory.data(), memory.bytes());
    launch(rank.stream, {.blocks = 1, .threads = 1}, AddToAll<T, N>{},
           DeviceHandle<SwitchChannel>(channel.deviceHandle()), std::uint64_t{2});
    rank.synchronize();
    auto const result = copyToHost(memory);
    for (unsigned i = 0; i < N; ++i) CHECK(convertNumber<float>(result[i]) == static_cast<float>(20 * (i + 1)));
  });
}

}  // namespace

TEST_CASE("what all ranks add to all ranks' memory") {
  addsUp<float, 1>();
  addsUp<float, 4>();
  addsUp<double, 1>();
  addsUp<Half, 2>();
  addsUp<Half, 8>();
  addsUp<BFloat16, 4>();
  addsUp<std::int32_t, 1>();
  addsUp<std::uint64_t, 1>();
}

namespace {

// Many rounds of the barrier, by halves relaxed; the ranks' counts stay together.
struct Rounds {
  MSCCLPP_DEVICE void operator()(DeviceHandle<SwitchChannel> const& channel, std::uint32_t* shared,
                                 std::uint32_t* wrong, unsigned rounds) const {
    for (unsigned round = 0; round < rounds; ++round) {
      shared[round] = round + 1;
      channel.signal();
      channel.wait();
      auto const total = channel.template reduce<std::uint32_t>(round);
      if (total != (round + 1) * static_cast<unsigned>(channel.semaphore.ranks)) ++*wrong;
      channel.relaxedSignal();
      channel.relaxedWait();
    }
  }
};

}  // namespace

TEST_CASE("a barrier of all ranks, again and again") {
  for (int ranks : {1, 2, 8}) {
    if (!hasSwitch(ranks)) continue;
    forEachRank(ranks, [&](Rank& rank) {
      GpuBuffer<std::uint32_t> const memory(rank.device, 64, MemoryKind::shareable);
      GpuBuffer<std::uint32_t> const wrong(rank.device, 1);
      SwitchChannel const channel(rank.communicator, memory.data(), memory.bytes());
      for (int launches = 0; launches < 2; ++launches) {
        launch(rank.stream, {.blocks = 1, .threads = 1}, Rounds{}, DeviceHandle<SwitchChannel>(channel.deviceHandle()),
               memory.data(), wrong.data(), 20u);
        rank.synchronize();
      }
      CHECK(copyToHost(wrong)[0] == 0);
    });
  }
}

namespace {

template <class P>
struct ExchangePackets {
  MSCCLPP_DEVICE void operator()(DeviceHandle<SwitchChannel> const& channel, std::uint8_t const* in, std::uint8_t* out,
                                 std::uint64_t bytes, std::uint32_t flag) const {
    auto const block = thisBlock();
    auto const slice = P::slotsFor(bytes) * P::slotBytes;
    channel.template broadcastPackets<P>(block, static_cast<unsigned>(channel.rank) * slice, in, bytes, flag);
    for (unsigned r = 0; r < static_cast<unsigned>(channel.semaphore.ranks); ++r) {
      channel.template unpackPackets<P>(block, r * slice, out + r * bytes, bytes, flag);
    }
  }
};

}  // namespace

TEST_CASE_TEMPLATE("packets to all ranks", P, LL8, LL16) {
  for (int ranks : {2, 3}) {
    if (!hasSwitch(ranks)) continue;
    for (std::uint64_t bytes : {1, 13, 400}) {
      forEachRank(ranks, [&](Rank& rank) {
        GpuBuffer<std::uint8_t> const in(rank.device, bytes);
        GpuBuffer<std::uint8_t> const out(rank.device, bytes * static_cast<unsigned>(ranks));
        GpuBuffer<std::uint8_t> const memory(rank.device, 8192, MemoryKind::shareable);
        SwitchChannel const channel(rank.communicator, memory.data(), memory.bytes());
        copyToDevice(in, std::span<std::uint8_t const>(randomInput<std::uint8_t>(3, rank.rank, bytes)));
        std::vector<std::uint8_t> expected;
        for (int r = 0; r < ranks; ++r) {
          for (auto byte : randomInput<std::uint8_t>(3, r, bytes)) expected.push_back(byte);
        }
        launch(rank.stream, {.blocks = 1, .threads = 32}, ExchangePackets<P>{},
               DeviceHandle<SwitchChannel>(channel.deviceHandle()), static_cast<std::uint8_t const*>(in.data()),
               out.data(), bytes, 5u);
        rank.synchronize();
        CHECK(copyToHost(out) == expected);
      });
    }
  }
}

namespace {

struct Beyond {
  MSCCLPP_DEVICE void operator()(DeviceHandle<SwitchChannel> const& channel, std::uint64_t index) const {
    channel.broadcast(index, f32x4{});
  }
};

// What a call throws.
template <class F>
std::string messageOf(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("an index past the memory is refused with a report") {
  if (!hasSwitch(2)) return;
  forEachRank(2, [&](Rank& rank) {
    GpuBuffer<float> const memory(rank.device, 16, MemoryKind::shareable);
    SwitchChannel const channel(rank.communicator, memory.data(), memory.bytes());
    launch(rank.stream, {.blocks = 1, .threads = 1}, Beyond{}, DeviceHandle<SwitchChannel>(channel.deviceHandle()),
           std::uint64_t{4});
    auto const message = messageOf([&] { rank.communicator.synchronize(rank.stream); });
    CHECK_MESSAGE(message.find("a range up to byte 80 of a switch channel's memory, which has 64") != std::string::npos,
                  message);
    // An index whose byte 64 bits do not hold.
    launch(rank.stream, {.blocks = 1, .threads = 1}, Beyond{}, DeviceHandle<SwitchChannel>(channel.deviceHandle()),
           std::uint64_t{1} << 60);
    auto const wraps = messageOf([&] { rank.communicator.synchronize(rank.stream); });
    CHECK_MESSAGE(wraps.find("of a switch channel's memory, which has 64") != std::string::npos, wraps);
    rank.communicator.bootstrap()->barrier();
  });
}

#if !defined(__CUDACC__)
namespace {

struct SignalMissing {
  MSCCLPP_DEVICE void operator()(DeviceHandle<SwitchChannel> const& channel) const {
    if (channel.rank != 0) channel.signal();
    channel.wait();
  }
};

}  // namespace

TEST_CASE("who waits for a signal that does not come says so") {
  auto const message = messageOf([] {
    forEachRank(2, [&](Rank& rank) {
      GpuBuffer<float> const memory(rank.device, 16, MemoryKind::shareable);
      SwitchChannel const channel(rank.communicator, memory.data(), memory.bytes());
      launch(rank.stream, {.blocks = 1, .threads = 1}, SignalMissing{},
             DeviceHandle<SwitchChannel>(channel.deviceHandle()));
      rank.synchronize();
    });
  });
  CHECK_MESSAGE(message.find("switch channel 0") != std::string::npos, message);
}
#endif
