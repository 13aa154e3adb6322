// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel's end of the queue to a proxy. Any number of threads push; the proxy takes triggers in the order of their
// positions.
//
// A push makes everything ordered before it visible to the proxy. It waits only where the queue is full. A slot's last
// bit tells whether it was written in this lap: the parity of the lap, inverted, so that zeroed memory is empty. Cost:
// one atomic addition on the device, one 16-byte store to the host, and the fence of a release.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/layout/port_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// What kernels push to: a Fifo's handle, which any number of kernels of its device may have a copy of.
struct FifoDeviceHandle : layout::FifoHandle {
  FifoDeviceHandle() = default;
  MSCCLPP_HOST_DEVICE FifoDeviceHandle(layout::FifoHandle const& handle) : layout::FifoHandle(handle) {}

  // Returns the trigger's position: how many were pushed before it.
  MSCCLPP_DEVICE std::uint64_t push(layout::Trigger trigger) const {
    auto const position = fetchAdd<Order::relaxed, Scope::device>(head, 1u);
    // The slot's old content has been read before this is written: the cache hands on what its writer learned.
    if (position >= load<Order::acquire, Scope::device>(tailCache) + size) makeRoom(*this, position);
    // The size is a power of two.
    auto const parity = (position & size) == 0 ? layout::triggerParity : 0;
    trigger.snd = (trigger.snd & ~layout::triggerParity) | parity;
    storeReleaseWords4(reinterpret_cast<Words4*>(slots + (position & (size - 1))), bitCast<Words4>(trigger));
    return position;
  }

  // Whether the proxy has taken the trigger at that position.
  MSCCLPP_DEVICE bool poll(std::uint64_t position) const {
    return load<Order::acquire, Scope::system>(tail) > position;
  }
  // Waits until it has.
  MSCCLPP_DEVICE void sync(std::uint64_t position) const { awaitTail(position); }

 private:
  // Returns once the proxy has taken the trigger at that position, and how many it has taken.
  MSCCLPP_DEVICE std::uint64_t awaitTail(std::uint64_t position) const {
    std::uint64_t found = 0;
    pollAnswer(watch, {layout::WaitKind::proxy, -1, proxy, position + 1}, [&](std::uint64_t& seen) {
      seen = found = load<Order::acquire, Scope::system>(tail);
      return found > position;
    });
    return found;
  }
  // Until the slot of `position` is free; all who push learn it. sync() tells nobody: that would cost it a release. Has
  // a copy, in registers: what is not inlined and has a reference would get it in memory.
  MSCCLPP_COLD_DEVICE static void makeRoom(FifoDeviceHandle fifo, std::uint64_t position) {
    store<Order::release, Scope::device>(fifo.tailCache, fifo.awaitTail(position - fifo.size));
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
