// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// runRanks with devices that ranks share.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "host/fake_runtime.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

template <class F>
std::string refusalOf(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::invalidUsage);
    return error.what();
  }
  return {};
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
  CHECK(refusalOf([] { (void)devicesInTurn(DeviceKind::sim, 0); }).find("devices for 0 ranks") != std::string::npos);
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

TEST_CASE("devices that are not there are refused") {
  FakeRuntime::instance();
  int const count = Device::count(DeviceKind::sim);
  auto const nothing = [](Communicator&) {};
  CHECK(refusalOf([&] { runRanks(std::vector<Device>{}, nothing); }).find("no devices") != std::string::npos);
  auto const past = refusalOf([&] {
    runRanks(std::vector<Device>{{DeviceKind::sim, 0}, {DeviceKind::sim, count}}, nothing);
  });
  CHECK(past.find("runRanks: rank 1 on simulated device " + std::to_string(count)) != std::string::npos);
  CHECK(refusalOf([&] { runRanks(DeviceKind::sim, count + 1, nothing); }).find("name the devices that they share") !=
        std::string::npos);
}
