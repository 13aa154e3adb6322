// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/devices.hpp"

#include "sim/machine/kernel.hpp"
#include "sim/machine/stream.hpp"

namespace mscclpp::sim {
namespace {

constexpr unsigned threadsPerMultiprocessor = 2048;

unsigned roomOf(unsigned threads) { return (threads + lanesPerWarp - 1) / lanesPerWarp * lanesPerWarp; }
unsigned room(Kernel const& kernel) { return kernel.isHost() ? 0 : roomOf(kernel.shape().threads); }

}  // namespace

void Devices::install(MachineOptions const& options) {
  checkAddresses_ = options.checkAddresses;
  threads_ = static_cast<unsigned>(options.multiprocessors) * threadsPerMultiprocessor;
  devices_.clear();
  beginRun(options.devices);
}

void Devices::beginRun(int atLeast) {
  while (count() < atLeast) devices_.emplace_back().freeThreads = threads_;
  for (auto& device : devices_) device.launches = 0;
}

Devices::Device& Devices::of(Kernel& kernel) { return at(kernel.stream().device()); }

void Devices::queueBlocks(Kernel& kernel) {
  auto& device = of(kernel);
  device.waiting.push_back(&kernel);
  startBlocks(device);
}

void Devices::dropBlocks(Kernel& kernel) { std::erase(of(kernel).waiting, &kernel); }

void Devices::freeBlock(Kernel& kernel) {
  auto& device = of(kernel);
  device.freeThreads += room(kernel);
  startBlocks(device);
}

void Devices::startBlocks(Device& device) {
  while (!device.waiting.empty()) {
    Kernel& kernel = *device.waiting.front();
    // The blocks of a cluster run together or not at all.
    auto const together = kernel.shape().clusterBlocks;
    if (device.freeThreads < together * room(kernel)) return;
    device.freeThreads -= together * room(kernel);
    for (unsigned i = 0; i < together; ++i) kernel.startBlock();
    if (kernel.allBlocksStarted()) device.waiting.pop_front();
  }
}

bool Devices::fitsTogether(LaunchShape const& shape) const {
  return std::uint64_t{shape.clusterBlocks} * roomOf(shape.threads) <= threads_;
}

bool Devices::fits(Kernel const& kernel) const {
  return std::uint64_t{kernel.shape().blocks} * room(kernel) <= threads_;
}

bool Devices::reaches(int device, std::uintptr_t address, std::size_t bytes) {
  if (!checkAddresses_) return true;
  auto& d = at(device);
  if (auto const generation = heap_.generation(); d.heapGeneration != generation) {
    d.windows = {};
    d.heapGeneration = generation;
  }
  auto& window = d.windows[(address >> 16) % d.windows.size()];
  if (address < window.begin || address >= window.end) {
    window = heap_.windowOf(device, address);
    if (window.end == 0) return false;
  }
  return bytes <= window.end - address;
}

}  // namespace mscclpp::sim
