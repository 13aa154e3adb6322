// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Multicast windows of the simulated machine: what an access does to each rank's memory, and which accesses are
// refused.
#include <doctest/doctest.h>

#include "mscclpp/device/multimem.hpp"
#include "mscclpp/host/multicast.hpp"
#include "sim/sim_fixture.hpp"

using namespace simtest;

namespace {

// One window over an array of each of two devices, on device 0.
struct TwoDevices {
  DeviceArray<std::uint64_t> a{0, 32};
  DeviceArray<std::uint64_t> b{1, 32};
  std::unique_ptr<MulticastMemory> memory = machine().multicast(0);
  std::byte* address = nullptr;

  // `again`: the second device's memory counts as that of two ranks.
  explicit TwoDevices(bool again = false) {
    machine().enablePeer(0, machine().allocationOf(b.data()));
    CHECK_FALSE(memory->create(2, 512).has_value());
    memory->addDevice();
    memory->bind(0, a.data(), 256);
    // Bound are the second 256 bytes of the window.
    auto* const first = reinterpret_cast<std::byte*>(a.data());
    auto* const second = reinterpret_cast<std::byte*>(b.data());
    std::vector<std::byte*> bases{first, second};
    if (again) bases.push_back(second);
    address = memory->map({{256, 256, bases}});
  }
  std::uint64_t* at(std::size_t i) const { return reinterpret_cast<std::uint64_t*>(address + 256) + i; }
};

// What a kernel of one thread on `device` fails with; empty if it does not.
std::string failureOf(int device, std::function<void()> const& kernel) {
  simtest::Stream const stream(device);
  stream.launch({.blocks = 1, .threads = 1}, kernel);
  return errorText([&] { stream.synchronize(); }, ErrorCode::deviceError);
}

constexpr auto relaxed = Order::relaxed;
constexpr auto everybody = Scope::system;

}  // namespace

TEST_CASE("loads, stores and reductions reach every rank's memory") {
  sim::install({.devices = 2});
  {
    TwoDevices const two;
    two.a[3] = 5;
    two.b[3] = 7;
    two.b[4] = 100;
    std::uint64_t sum = 0, least = 0, largest = 0;
    auto const failure = failureOf(0, [&] {
      sum = multimemLoadReduce<Order::acquire, everybody>(two.at(3));
      least = multimemLoadReduce<relaxed, everybody, Min>(two.at(3));
      largest = multimemLoadReduce<relaxed, everybody, Max>(two.at(3));
      multimemStore<Order::release, everybody>(two.at(5), std::uint64_t{9});
      multimemStoreReduce<relaxed, everybody>(two.at(4), std::uint64_t{1});
      multimemStoreReduce<Order::release, Scope::device, Max>(two.at(4), std::uint64_t{50});
    });
    CHECK(failure == "");
    CHECK(sum == 12);
    CHECK(least == 5);
    CHECK(largest == 7);
    CHECK(two.a[5] == 9);
    CHECK(two.b[5] == 9);
    CHECK(two.a[4] == 50);
    CHECK(two.b[4] == 101);
  }
  sim::install({});
}

TEST_CASE("sums of small floats are rounded once, in the accumulator that was named") {
  sim::install({.devices = 2});
  {
    TwoDevices const two(/*again=*/true);
    auto const half = [](float value) { return convertNumber<Half>(value); };
    auto* const a = reinterpret_cast<Half*>(two.a.data());
    auto* const b = reinterpret_cast<Half*>(two.b.data());
    a[0] = half(2048);
    b[0] = half(1);
    f16x2 wide{}, narrow{};
    auto const failure = failureOf(0, [&] {
      auto const* const p = reinterpret_cast<f16x2 const*>(two.at(0));
      wide = multimemLoadReduce<relaxed, everybody>(p);
      narrow = multimemLoadReduce<relaxed, everybody, Sum, Half>(p);
    });
    CHECK(failure == "");
    CHECK(static_cast<float>(wide[0]) == 2050);
    CHECK(static_cast<float>(narrow[0]) == 2048);  // neither 1 shows beside 2048
  }
  sim::install({});
}

TEST_CASE("accesses that hardware could not carry out fail the kernel and say why") {
  sim::install({.devices = 2});
  {
    TwoDevices const two;
    auto const store = [](void* where) {
      return [where] { multimemStore<relaxed, everybody>(static_cast<f32x4*>(where), f32x4{}); };
    };
    CHECK(contains(failureOf(0, store(reinterpret_cast<std::byte*>(two.at(0)) + 8)), "not aligned to 16"));
    CHECK(contains(failureOf(0, store(two.a.data())), "is no multicast address"));
    CHECK(contains(failureOf(0, store(two.a.data())), "it is the plain address of memory"));
    CHECK(
        contains(failureOf(0, store(two.address)), "offset 0 of a multicast window: no memory of the ranks is bound"));
    CHECK(contains(failureOf(1, store(two.at(0))), "the multicast address is one of device 0"));
    CHECK(contains(failureOf(0, [&] { (void)load<relaxed, everybody>(two.at(0)); }),
                   "no memory of the simulated machine"));
  }
  {
    // Memory that its owner has taken back.
    auto const address = [] {
      static std::unique_ptr<MulticastMemory> kept;
      TwoDevices two;
      kept = std::move(two.memory);
      return two.at(0);
    }();
    CHECK(contains(failureOf(0, [&] { multimemStore<relaxed, everybody>(address, std::uint64_t{1}); }),
                   "reaches rank 0 of the multicast window"));
  }
  sim::install({});
}

TEST_CASE("a machine without a switch says so") {
  sim::install({.devices = 2, .multicast = false});
  CHECK_FALSE(isNvlsSupported({DeviceKind::sim, 0}));
  CHECK(contains(whyNoMulticast({DeviceKind::sim, 0}), "no multicast switch"));
  sim::run({.ranks = 2}, [](sim::RankContext& context) {
    Communicator const communicator(context.bootstrap(), {DeviceKind::sim, context.device()});
    GpuBuffer<float> const buffer(communicator.device(), 64);
    auto const make = [&] { MulticastWindow const window(communicator, buffer.data(), buffer.bytes()); };
    CHECK(contains(errorText(make, ErrorCode::unsupported), "no multicast window on"));
  });
  sim::install({});
}
