// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "sim/sim_fixture.hpp"

using namespace simtest;

TEST_CASE("devices and their memory") {
  sim::install({.devices = 3, .memoryBytes = 1 << 20});
  CHECK(machine().deviceCount() == 3);
  CHECK(machine().properties(2).memoryBytes == 1 << 20);
  CHECK(contains(errorText([] { machine().properties(3); }, ErrorCode::invalidUsage), "no simulated device 3"));
  CHECK(contains(errorText([] { machine().createStream(-1); }, ErrorCode::invalidUsage), "no simulated device -1"));

  {
    DeviceArray<unsigned char> most(1, 1 << 19);
    CHECK(std::ranges::count(most.values(), 0) == 1 << 19);
    auto const text =
        errorText([] { machine().allocate(1, (1 << 19) + 1, MemoryKind::standard); }, ErrorCode::deviceError);
    CHECK(contains(text,
                   "out of memory on simulated device 1: 524289 bytes asked for, 524288 in use, the limit is 1048576"));
    DeviceArray<unsigned char> other(0, 1 << 20);  // each device has its own
    CHECK(contains(errorText([] { sim::install({}); }, ErrorCode::invalidUsage), "is in use"));
  }
  DeviceArray<unsigned char> again(1, 1 << 20);
  CHECK(
      contains(errorText([] { machine().allocate(0, 0, MemoryKind::standard); }, ErrorCode::invalidUsage), "0 bytes"));
}

TEST_CASE("an allocation is found from any pointer into it") {
  sim::install({});
  DeviceArray<std::uint32_t> words(5, 1000);
  auto const allocation = machine().allocationOf(words.data() + 999);
  CHECK(allocation.base == words.data());
  CHECK(allocation.bytes == 4000);
  CHECK(allocation.device == 5);
  CHECK(contains(errorText([&] { machine().allocationOf(words.data() + 1000); }, ErrorCode::invalidUsage),
                 "no allocation"));
  int local = 0;
  CHECK(contains(errorText([&] { machine().allocationOf(&local); }, ErrorCode::invalidUsage), "no allocation"));
}

TEST_CASE("copies and fills") {
  DeviceArray<std::uint32_t> a(0, 256), b(1, 256);
  std::vector<std::uint32_t> values(256);
  std::iota(values.begin(), values.end(), 1u);
  machine().copy(a.data(), values.data(), 1024);
  machine().copy(b.data(), a.data(), 1024);
  CHECK(b.values() == values);
  machine().fill(b.data() + 10, 0xff, 40);
  CHECK(b[9] == 10);
  CHECK(b[10] == 0xffffffffu);
  CHECK(b[20] == 21);
  CHECK(contains(
      errorText([&] { machine().copy(b.data() + 1, values.data(), 1024); }, ErrorCode::invalidUsage),
      "copy of 1024 bytes at offset 4 runs past the end of an allocation of 1024 bytes on simulated device 1"));
  CHECK(contains(errorText([&] { machine().fill(a.data() + 255, 0, 8); }, ErrorCode::invalidUsage), "fill of 8 bytes"));
  CHECK(
      contains(errorText([&] { machine().copy(nullptr, a.data(), 4); }, ErrorCode::invalidUsage), "to a null pointer"));
  CHECK_NOTHROW(machine().copy(nullptr, nullptr, 0));
}

TEST_CASE("imports are checked") {
  DeviceArray<std::uint32_t> words(0, 1024);
  int const descriptor = machine().exportDescriptor(machine().allocationOf(words.data())).value();
  auto* mapped = static_cast<std::uint32_t*>(machine().importDescriptor(3, descriptor, 4096));
  mapped[5] = 77;
  CHECK(words[5] == 77);
  Stream near(3), far(4);
  near.launch({.threads = 1}, [mapped] { store<Order::relaxed, Scope::system>(mapped + 6, 78u); });
  near.synchronize();
  CHECK(words[6] == 78);
  far.launch({.threads = 1}, [mapped] { store<Order::relaxed, Scope::system>(mapped + 6, 79u); });
  CHECK(contains(errorText([&] { far.synchronize(); }, ErrorCode::deviceError), "not open to simulated device 4"));
  machine().releaseImport(mapped);
  near.launch({.threads = 1}, [mapped] { store<Order::relaxed, Scope::system>(mapped + 6, 79u); });
  CHECK(contains(errorText([&] { near.synchronize(); }, ErrorCode::deviceError), "freed"));
  CHECK(contains(errorText([&] { machine().importDescriptor(3, descriptor, 8192); }, ErrorCode::invalidUsage),
                 "the exported memory has 4096"));
  ::close(descriptor);
  CHECK(contains(errorText([&] { machine().importDescriptor(3, descriptor, 4096); }, ErrorCode::systemError), "EBADF"));
  CHECK_FALSE(errorText([] { machine().importIpc(0, {}); }, ErrorCode::unsupported).empty());
}

TEST_CASE("options are checked") {
  auto refused = [](sim::MachineOptions const& options) {
    return errorText([&] { sim::install(options); }, ErrorCode::invalidUsage);
  };
  CHECK(contains(refused({.devices = -1}), "devices is -1"));
  CHECK(contains(refused({.memoryBytes = 0}), "memoryBytes"));
  CHECK(contains(refused({.multiprocessors = 0}), "multiprocessors is 0"));
  CHECK(contains(refused({.threadStackBytes = 100}), "threadStackBytes is 100"));
  CHECK(contains(refused({.preemption = -0.1}), "preemption is -0.1"));
}

TEST_CASE("the number of devices comes from the environment") {
  ::setenv("MSCCLPP_SIM_DEVICES", "5", 1);
  sim::install({});
  CHECK(machine().deviceCount() == 5);
  for (char const* bad : {"five", "0", "-2", "4x", "100000"}) {
    ::setenv("MSCCLPP_SIM_DEVICES", bad, 1);
    auto const text = errorText(
        [] {
          sim::install({});
          machine().deviceCount();
        },
        ErrorCode::invalidUsage);
    CHECK(contains(text, std::string("MSCCLPP_SIM_DEVICES is \"") + bad + "\""));
  }
  ::unsetenv("MSCCLPP_SIM_DEVICES");
  sim::install({});
  CHECK(machine().deviceCount() == 8);
}
