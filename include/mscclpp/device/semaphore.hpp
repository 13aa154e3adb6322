// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A semaphore between this rank and one peer, both on memory-mapped devices.
//
// signal() makes everything ordered before it visible to the peer's thread whose wait() it ends. The relaxed forms only
// count. Every signal ends exactly one wait. Counters are 64 bits, only grow, and live in device memory, so kernels may
// be captured and replayed. One thread waits at a time. Cost: a signal is one remote reduction that nobody waits for
// (plus a fence, unless relaxed); a wait polls local memory.
#pragma once

#include <cstdint>

#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/layout/channel_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// What kernels have of a MemoryDevice2DeviceSemaphore, by value.
struct MemoryDevice2DeviceSemaphoreDeviceHandle : layout::SemaphoreHandle {
  MemoryDevice2DeviceSemaphoreDeviceHandle() = default;
  MSCCLPP_HOST_DEVICE MemoryDevice2DeviceSemaphoreDeviceHandle(layout::SemaphoreHandle const& handle)
      : layout::SemaphoreHandle(handle) {}

  // Release at the system's scope. relaxedSignal() tells that memory may be written again, where nothing written before
  // matters.
  MSCCLPP_DEVICE void signal() const { reduceAdd<Order::release, Scope::system>(remoteInbound, 1u); }
  MSCCLPP_DEVICE void relaxedSignal() const { reduceAdd<Order::relaxed, Scope::system>(remoteInbound, 1u); }

  // Until the peer has signalled once more, and acquires; relaxedWait() makes nothing of the peer's visible.
  MSCCLPP_DEVICE void wait() const { waitFor<Order::acquire>(); }
  MSCCLPP_DEVICE void relaxedWait() const { waitFor<Order::relaxed>(); }

  // True, and one signal consumed, if a signal is there.
  MSCCLPP_DEVICE bool poll() const {
    auto const next = *expected + 1;
    if (load<Order::acquire, Scope::system>(inbound) < next) return false;
    *expected = next;
    return true;
  }

 private:
  template <Order O>
  MSCCLPP_DEVICE void waitFor() const {
    auto const next = *expected + 1;
    *expected = next;
    mscclpp::poll(watch, {layout::WaitKind::semaphore, peer, id, next}, [this, next](std::uint64_t& seen) {
      seen = load<O, Scope::system>(inbound);
      return seen >= next;
    });
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
