// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Multicast memory: one address for kernels of each rank that stands for the same place in the memory of all of them,
// read and written by the switch between the devices (NVLink SHARP, NVLS).
//
//   GpuBuffer<float> buffer(device, n, MemoryKind::shareable);
//   MulticastWindow window(communicator, buffer.data(), buffer.bytes());
//   launch(stream, shape, Kernel{}, window.address(), ...);      // multimemLoadReduce and the like in the kernel
//
// Making one is collective over its ranks, which all give as many buffers, each of one size on all ranks. On GPUs a
// buffer begins at a multiple of the granularity (2 MiB, mostly) in memory that can be shared by descriptor. The memory
// stays its owner's and outlives the window; destroy that only when the kernels of all ranks that use it have ended.
//
// With NCCL_NVLS_ENABLE=0 or MSCCLPP_NVLS=0 in the environment multicast is off: nothing here then calls the driver.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/memory.hpp"

namespace mscclpp {

// Whether the device can take part in multicast memory, and the settings allow it.
bool isNvlsSupported(Device device);
// Empty where it can; otherwise why not, and what to do about it.
std::string whyNoMulticast(Device device);

// Whether all ranks can make a MulticastWindow of this memory, all of which is theirs: none shares its device, all
// devices can take part, and each rank's memory begins at the begin of an allocation that can be bound. Null: of memory
// that is yet to be made. Collective.
bool canMulticast(Communicator const& communicator, void const* memory = nullptr);

// Memory of one rank that gets an address in a window.
struct MulticastBuffer {
  void* memory;
  std::size_t bytes;
};

class MulticastWindow {
 public:
  // `ranks`: of the communicator, in the same order on each; empty: all. Throws on every member where one cannot:
  // unsupported where a device or the settings rule multicast out, invalidUsage where sizes or ranks differ or memory
  // is of a kind that cannot be bound, deviceError with the driver's answer.
  MulticastWindow(Communicator const& communicator, std::vector<MulticastBuffer> const& buffers,
                  std::vector<int> ranks = {});
  MulticastWindow(Communicator const& communicator, void* memory, std::size_t bytes, std::vector<int> ranks = {})
      : MulticastWindow(communicator, std::vector<MulticastBuffer>{{memory, bytes}}, std::move(ranks)) {}
  MulticastWindow(MulticastWindow&&) noexcept;
  MulticastWindow& operator=(MulticastWindow&&) noexcept;
  ~MulticastWindow();

  // For kernels of this rank's device, and for multicast accesses only.
  std::byte* address(std::size_t buffer = 0) const;
  std::size_t bytes(std::size_t buffer = 0) const;
  std::size_t buffers() const noexcept { return parts_.size(); }

 private:
  struct Part {
    std::size_t offset;
    std::size_t bytes;
  };
  Part const& part(std::size_t buffer) const;

  std::vector<RegisteredMemory> mapped_;  // outlives the window over it
  std::shared_ptr<void> keepAlive_;
  std::vector<Part> parts_;
  std::byte* base_ = nullptr;
  std::unique_ptr<MulticastMemory> memory_;  // undone first
};

}  // namespace mscclpp
