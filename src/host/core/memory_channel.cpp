// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/memory_channel.hpp"

#include <cstdint>
#include <utility>

#include "base/format.hpp"

namespace mscclpp {
namespace {

// Packets and the widest loads and stores need it.
constexpr std::uintptr_t alignment = 16;

void checkAligned(char const* what, int peer, void const* pointer) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
    fail(ErrorCode::invalidUsage, "MemoryChannel to rank {}: {} at {} is not aligned to {} bytes", peer, what,
         fmt::ptr(pointer), alignment);
  }
}

}  // namespace

MemoryChannel::MemoryChannel(MemoryDevice2DeviceSemaphore semaphore, RegisteredMemory dst, RegisteredMemory src,
                             void* packetBuffer)
    : semaphore_(std::move(semaphore)),
      dst_(std::move(dst)),
      src_(std::move(src)),
      packetBuffer_(static_cast<std::byte*>(packetBuffer)) {
  int const peer = semaphore_.peer();
  if (!dst_ || dst_.rank() != peer) {
    fail(ErrorCode::invalidUsage, "MemoryChannel to rank {}: its dst is {}; give memory received from rank {}", peer,
         dst_ ? fmt::format("memory of rank {}", dst_.rank()) : std::string("empty"), peer);
  }
  if (!src_ || src_.reach() != MemoryReach::own) {
    fail(ErrorCode::invalidUsage, "MemoryChannel to rank {}: its src is {}; give this rank's own memory", peer,
         src_ ? fmt::format("memory of rank {}", src_.rank()) : std::string("empty"));
  }
  checkAligned("dst", peer, dst_.data());
  checkAligned("src", peer, src_.data());
  if (packetBuffer == nullptr) return;
  checkAligned("the packet buffer", peer, packetBuffer);
  Allocation const allocation = src_.device().runtime().allocationOf(packetBuffer);
  if (allocation.device != src_.device().ordinal) {
    fail(ErrorCode::invalidUsage, "MemoryChannel to rank {}: the packet buffer is on device {}, this rank's is {}",
         peer, allocation.device, src_.device().ordinal);
  }
  packetBytes_ = allocation.bytes - static_cast<std::size_t>(packetBuffer_ - static_cast<std::byte*>(allocation.base));
}

layout::MemoryChannelHandle MemoryChannel::deviceHandle() const {
  layout::MemoryChannelHandle handle{};
  handle.semaphore = semaphore_.deviceHandle();
  handle.dst = dst_.data();
  handle.src = src_.data();
  handle.packetBuffer = packetBuffer_;
  handle.dstBytes = dst_.size();
  handle.srcBytes = src_.size();
  handle.packetBytes = packetBytes_;
  return handle;
}

}  // namespace mscclpp
