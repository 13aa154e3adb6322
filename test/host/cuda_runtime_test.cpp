// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host helper on real GPUs, one or more; without any, what it says about that.
#include <doctest/doctest.h>

#include <numeric>

#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/team.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

std::string const noGpu = "no GPU";

Device gpuOf(int rank) { return {DeviceKind::cuda, rank % Device::count(DeviceKind::cuda)}; }

// Every rank writes into every rank's memory of `kind`, from the host. Empty where all arrived.
std::string exchange(Communicator& communicator, MemoryKind kind, MemoryReach expected) {
  auto const device = communicator.device();
  int const rank = communicator.rank();
  int const size = communicator.size();
  GpuBuffer<int> const buffer(device, 4096, kind);
  if (copyToHost(buffer) != std::vector<int>(4096, 0)) return "new memory is not zero";
  // Not from the start of the allocation: the peers must find the offset.
  auto const own = communicator.registerMemory(buffer.data() + 100, 400);
  auto const all = communicator.exchangeMemory(own);
  for (int peer = 0; peer < size; ++peer) {
    auto const& memory = all[static_cast<std::size_t>(peer)];
    if (peer != rank && memory.reach() != expected) return "reached by " + std::string(nameOf(memory.reach()));
    copyToDevice(device, reinterpret_cast<int*>(memory.data()) + rank, std::vector<int>{1000 * peer + rank + 1});
  }
  communicator.bootstrap()->barrier();
  auto const values = copyToHost(buffer);
  for (int peer = 0; peer < size; ++peer) {
    if (values[static_cast<std::size_t>(100 + peer)] != 1000 * rank + peer + 1) {
      return "rank " + std::to_string(peer) + "'s value did not arrive at rank " + std::to_string(rank);
    }
  }
  // A second registration of the same allocation, while the first is mapped.
  auto const again = communicator.exchangeMemory(communicator.registerMemory(buffer.data(), 64));
  communicator.bootstrap()->barrier();
  return again.size() == static_cast<std::size_t>(size) ? "" : "second exchange";
}

std::string exerciseRank(std::shared_ptr<Bootstrap> const& bootstrap, MemoryReach standard, MemoryReach shareable) {
  Communicator communicator(bootstrap, gpuOf(bootstrap->getRank()));
  std::string wrong = exchange(communicator, MemoryKind::standard, standard);
  if (wrong.empty()) wrong = exchange(communicator, MemoryKind::shareable, shareable);
  Team const team(communicator, {.blocks = 4, .packetBytes = 1 << 16, .lineBytes = 0, .stageBytes = 1 << 20});
  std::vector<MemoryDevice2DeviceSemaphore> semaphores;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer != communicator.rank()) semaphores.push_back(communicator.buildSemaphore(peer));
  }
  Stream const stream(communicator.device());
  communicator.synchronize(stream);
  bootstrap->barrier();
  return wrong;
}

}  // namespace

// First: a process that has used CUDA must not fork.
TEST_CASE("ranks as processes share both kinds of memory") {
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(
      4,
      [&](int rank) -> std::string {
        if (Device::count(DeviceKind::cuda) == 0) return noGpu;
        auto const bootstrap = std::make_shared<TcpBootstrap>(rank, 4);
        bootstrap->initialize(id, 60s);
        return exerciseRank(bootstrap, MemoryReach::ipc, MemoryReach::descriptor);
      },
      100s);
  for (auto const& text : texts) {
    if (text != noGpu) CHECK(text == "");
  }
}

TEST_CASE("ranks as threads use each other's pointers") {
  if (Device::count(DeviceKind::cuda) == 0) {
    auto const error = errorOf([] { runtime(DeviceKind::cuda); });
    REQUIRE(error.has_value());
    CHECK(error->code() == ErrorCode::unsupported);
    CHECK_MESSAGE(mentions(error, "no CUDA devices"), error->what());
    return;
  }
  int const ranks = std::max(2, Device::count(DeviceKind::cuda));
  auto const world = LocalBootstrap::create(ranks, 60s);
  auto const errors = runThreads(ranks, [&](int rank) {
    auto const wrong =
        exerciseRank(world[static_cast<std::size_t>(rank)], MemoryReach::sameProcess, MemoryReach::sameProcess);
    if (!wrong.empty()) throw Error(ErrorCode::internalError, wrong);
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("what CUDA refuses comes as errors that name it, and leave the device usable") {
  if (Device::count(DeviceKind::cuda) == 0) return;
  Device const device = gpuOf(0);
  Runtime& machine = device.runtime();
  auto const properties = device.properties();
  CHECK(properties.multiprocessors > 0);
  CHECK_FALSE(properties.busId.empty());
  for (auto kind : {MemoryKind::standard, MemoryKind::shareable}) {
    auto const error = errorOf([&] { machine.allocate(0, properties.memoryBytes * 2, kind); });
    REQUIRE(error.has_value());
    CHECK(error->code() == ErrorCode::deviceError);
    CHECK_MESSAGE(mentions(error, "on CUDA device 0"), error->what());
    CHECK_MESSAGE(
        (mentions(error, "OutOfMemory") || mentions(error, "MemoryAllocation") || mentions(error, "OUT_OF_MEMORY")),
        error->what());
  }
  std::vector<int> onHost(16);
  CHECK(mentions(errorOf([&] { RegisteredMemory::own(0, device, onHost.data(), 64); }), "is not CUDA device memory"));
  auto* const pinned = static_cast<int*>(machine.allocateHost(64));
  CHECK(std::accumulate(pinned, pinned + 16, 0) == 0);
  CHECK(mentions(errorOf([&] { RegisteredMemory::own(0, device, pinned, 64); }), "is not CUDA device memory"));
  machine.releaseHost(pinned);
  CHECK(errorOf([&] { machine.importIpc(0, IpcHandle{}); })->code() == ErrorCode::deviceError);
  CHECK(mentions(errorOf([&] { machine.allocate(99, 64, MemoryKind::standard); }), "CUDA device 99"));
  CHECK(machine.linesArriveWhole(0, 0));
  CHECK_FALSE(machine.linesArriveWhole(0, 99));

  GpuBuffer<int> const buffer(device, 1 << 20, MemoryKind::shareable);
  Allocation const allocation = machine.allocationOf(buffer.data() + 1000);
  CHECK(allocation.base == buffer.data());
  CHECK(allocation.bytes >= buffer.bytes());
  CHECK(allocation.device == 0);
  buffer.fill(1);
  CHECK(copyToHost(buffer)[12345] == 0x01010101);
  Stream const stream(device);
  std::vector<int> values(1 << 20, 7);
  machine.copyAsync(buffer.data(), values.data(), buffer.bytes(), stream.native());
  stream.synchronize(30s);
  CHECK(stream.idle());
  CHECK(copyToHost(buffer) == values);
}
