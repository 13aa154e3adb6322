// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host side of memory channels: a semaphore to one peer together with the memory that kernels put to and get from.
#pragma once

#include <cstddef>
#include <utility>

#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/semaphore.hpp"
#include "mscclpp/layout/channel_handle.hpp"

namespace mscclpp {

// Signals only.
class BaseMemoryChannel {
 public:
  explicit BaseMemoryChannel(MemoryDevice2DeviceSemaphore semaphore) : semaphore_(std::move(semaphore)) {}
  // For BaseMemoryChannelDeviceHandle in kernels.
  layout::SemaphoreHandle deviceHandle() const { return semaphore_.deviceHandle(); }

 private:
  MemoryDevice2DeviceSemaphore semaphore_;
};

class MemoryChannel {
 public:
  // `dst` is memory of the semaphore's peer, `src` of this rank; `packetBuffer`, where packets are used, is memory of
  // this rank that the peer has as its `dst`: from the pointer to the end of its allocation. All are 16-byte aligned.
  // Throws invalidUsage where that is not so.
  MemoryChannel(MemoryDevice2DeviceSemaphore semaphore, RegisteredMemory dst, RegisteredMemory src,
                void* packetBuffer = nullptr);

  // For MemoryChannelDeviceHandle and PacketChannelDeviceHandle in kernels.
  layout::MemoryChannelHandle deviceHandle() const;

 private:
  MemoryDevice2DeviceSemaphore semaphore_;
  RegisteredMemory dst_;
  RegisteredMemory src_;
  std::byte* packetBuffer_ = nullptr;
  std::size_t packetBytes_ = 0;
};

}  // namespace mscclpp
