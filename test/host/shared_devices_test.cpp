// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// runRanks with devices that ranks share.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "host/fake_runtime.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

void checkRefused(std::function<void()> const& call, std::string const& why) {
  auto const error = errorOf(call);
  REQUIRE(error);
  CHECK(error->code() == ErrorCode::invalidUsage);
  CHECK_MESSAGE(mentions(error, why), textOf(error));
}

}  // namespace

TEST_CASE("ranks in turn on the devices that there are") {
  FakeRuntime::instance();
  int const count = Device::count(DeviceKind::sim);
  auto const devices = devicesInTurn(DeviceKind::sim, 2 * count + 1);
  REQUIRE(devices.size() == static_cast<std::size_t>(2 * count + 1));
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    CHECK(devices[rank].kind == DeviceKind::sim);
    CHECK(devices[rank].ordinal == static_cast<int>(rank) % count);
  }
  checkRefused([] { (void)devicesInTurn(DeviceKind::sim, 0); }, "devices for 0 ranks");
}

TEST_CASE("ranks that share a device reach each other") {
  FakeRuntime::instance();
  std::array<Device, 3> const devices{Device{DeviceKind::sim, 1}, {DeviceKind::sim, 0}, {DeviceKind::sim, 1}};
  std::array<int, 3> ordinals{-1, -1, -1};
  std::array<int, 3> reached{};
  runRanks(devices, [&](Communicator& communicator) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    ordinals[rank] = communicator.device().ordinal;
    for (int peer = 0; peer < communicator.size(); ++peer) reached[rank] += communicator.reaches(peer) ? 1 : 0;
  });
  CHECK(ordinals == std::array<int, 3>{1, 0, 1});
  CHECK(reached == std::array<int, 3>{3, 3, 3});
}

TEST_CASE("memory that a rank releases stays while ranks share a device, and no longer") {
  auto& machine = FakeRuntime::instance();
  auto const before = machine.liveBlocks();
  for (bool const shared : {false, true}) {
    std::array<Device, 2> const devices{Device{DeviceKind::sim, 0}, {DeviceKind::sim, shared ? 0 : 1}};
    std::array<std::size_t, 2> released{};
    runRanks(devices, [&](Communicator& communicator) {
      // Both have what they keep, then both let go of 3 blocks.
      communicator.bootstrap()->barrier();
      auto const live = machine.liveBlocks();
      communicator.bootstrap()->barrier();
      {
        DeviceMemory const one(communicator.device(), 64);
        DeviceMemory const other(communicator.device(), 64);
        auto* const host = machine.allocateHost(64);
        machine.releaseHost(host);
      }
      communicator.bootstrap()->barrier();
      released[static_cast<std::size_t>(communicator.rank())] = live + 6 - machine.liveBlocks();
      communicator.bootstrap()->barrier();
    });
    std::size_t const expected = shared ? 0 : 6;
    CHECK(released == std::array{expected, expected});
    CHECK(machine.liveBlocks() == before);
  }
}

TEST_CASE("how many ranks a device has") {
  FakeRuntime::instance();
  auto const most = [](std::vector<int> const& ordinals) {
    std::vector<Device> devices;
    for (int const ordinal : ordinals) devices.push_back({DeviceKind::sim, ordinal});
    std::vector<int> seen(devices.size());
    runRanks(devices, [&](Communicator& communicator) {
      seen[static_cast<std::size_t>(communicator.rank())] = communicator.ranksPerDevice();
    });
    for (int const one : seen) CHECK(one == seen.front());
    return seen.front();
  };
  CHECK(most({0, 1, 2}) == 1);
  CHECK(most({3}) == 1);
  CHECK(most({0, 1, 0, 1, 2, 1}) == 3);
}

TEST_CASE("devices that are not there are refused") {
  FakeRuntime::instance();
  int const count = Device::count(DeviceKind::sim);
  auto const nothing = [](Communicator&) {};
  checkRefused([&] { runRanks(std::vector<Device>{}, nothing); }, "no devices");
  checkRefused(
      [&] {
        runRanks(std::vector<Device>{{DeviceKind::sim, 0}, {DeviceKind::sim, count}}, nothing);
      },
      "runRanks: rank 1 on simulated device " + std::to_string(count));
  checkRefused([&] { runRanks(DeviceKind::sim, count + 1, nothing); }, "name the devices that they share");
}
