// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A channel to all ranks of a group at once, through the switch between them (NVLink SHARP): what the ranks hold at one
// place of their memory is read as one sum, and written by one store. From compute capability 9.0.
//
//   reduce<V>(index)             the sum of everybody's element `index`, taken as an array of V (f32x4, bf16x8, ...)
//   broadcast<V>(index, value)   writes it into everybody's memory, the own included
//   signal(), wait()             a barrier of the group: a signal reaches all, a wait ends by one signal of every rank
//   broadcastPackets, unpackPackets   data with flags into everybody's memory, and out of the own
//
// Reductions and broadcasts order nothing. To hand over: the group writes, `group.sync()`, one thread signal()s and
// wait()s, its group syncs and reads. signal() makes what is ordered before it visible to whoever ends a wait() by it,
// by multicast addresses and plain ones alike; the relaxed forms only count. Every rank signals as often as it waits,
// and one thread of a rank waits at a time. Counters are 64 bits, only grow, and live in device memory, so kernels may
// be captured and replayed. Types, widths and operations: device/multimem.hpp. A range outside of the memory is refused
// with a report. Cost: a signal is one multicast reduction and two fences; a wait polls local memory.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/multimem.hpp"
#include "mscclpp/device/packet_channel.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/layout/switch_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// The barrier by itself; one thread of each rank calls.
struct SwitchDevice2DeviceSemaphoreDeviceHandle : layout::SwitchSemaphoreHandle {
  SwitchDevice2DeviceSemaphoreDeviceHandle() = default;
  MSCCLPP_HOST_DEVICE SwitchDevice2DeviceSemaphoreDeviceHandle(layout::SwitchSemaphoreHandle const& handle)
      : layout::SwitchSemaphoreHandle(handle) {}

  // Counts up every rank's counter, the own one too. relaxedSignal() without fences: for room to write, not for data.
  MSCCLPP_DEVICE void signal() const {
    multimemFence();
    multimemStoreReduce<Order::release, Scope::system>(multicastInbound, std::uint64_t{1});
  }
  MSCCLPP_DEVICE void relaxedSignal() const {
    multimemStoreReduce<Order::relaxed, Scope::system>(multicastInbound, std::uint64_t{1});
  }
  // Until every rank has signalled once more; relaxedWait() makes nothing visible.
  MSCCLPP_DEVICE void wait() const { waitFor<Order::acquire>(); }
  MSCCLPP_DEVICE void relaxedWait() const { waitFor<Order::relaxed>(); }

 private:
  template <Order O>
  MSCCLPP_DEVICE void waitFor() const {
    auto const next = *expected + static_cast<std::uint64_t>(ranks);
    *expected = next;
    // The counter is written by one address and read by another.
    multimemFence();
    mscclpp::poll(watch, {layout::WaitKind::switchBarrier, -1, id, next}, [this, next](std::uint64_t& seen) {
      seen = load<O, Scope::system>(inbound);
      return static_cast<std::int64_t>(seen - next) >= 0;  // right also when the counts wrap
    });
  }
};

// What kernels have of a SwitchChannel, by value.
struct SwitchChannelDeviceHandle : layout::SwitchChannelHandle {
  SwitchChannelDeviceHandle() = default;
  MSCCLPP_HOST_DEVICE SwitchChannelDeviceHandle(layout::SwitchChannelHandle const& handle)
      : layout::SwitchChannelHandle(handle) {}

  MSCCLPP_DEVICE void signal() const { SwitchDevice2DeviceSemaphoreDeviceHandle(semaphore).signal(); }
  MSCCLPP_DEVICE void relaxedSignal() const { SwitchDevice2DeviceSemaphoreDeviceHandle(semaphore).relaxedSignal(); }
  MSCCLPP_DEVICE void wait() const { SwitchDevice2DeviceSemaphoreDeviceHandle(semaphore).wait(); }
  MSCCLPP_DEVICE void relaxedWait() const { SwitchDevice2DeviceSemaphoreDeviceHandle(semaphore).relaxedWait(); }

  template <class V, class Op = Sum>
  MSCCLPP_DEVICE V reduce(std::uint64_t index) const {
    check(rangeEnd(sizeof(V), index, sizeof(V)));
    return mscclpp::multimemLoadReduce<Order::relaxed, Scope::system, Op>(reinterpret_cast<V const*>(multicast) +
                                                                          index);
  }
  template <class V>
  MSCCLPP_DEVICE void broadcast(std::uint64_t index, V const& value) const {
    check(rangeEnd(sizeof(V), index, sizeof(V)));
    mscclpp::multimemStore<Order::relaxed, Scope::system>(reinterpret_cast<V*>(multicast) + index, value);
  }

  // For multicast addresses from elsewhere; relaxed, in the system's scope.
  template <class V, class Acc = void, class Op = Sum>
  MSCCLPP_DEVICE static V multimemLoadReduce(V const* address) {
    return mscclpp::multimemLoadReduce<Order::relaxed, Scope::system, Op, Acc>(address);
  }
  template <class V>
  MSCCLPP_DEVICE static void multimemStore(V const& value, V* address) {
    mscclpp::multimemStore<Order::relaxed, Scope::system>(address, value);
  }
  template <class V, class Op = Sum>
  MSCCLPP_DEVICE static void multimemStoreReduce(V const& value, V* address) {
    mscclpp::multimemStoreReduce<Order::relaxed, Scope::system, Op>(address, value);
  }

  // Packs `bytes` of `src` into the slots that begin `packetOffset` bytes into everybody's memory. `flag` as in
  // MemoryChannel::putPackets; LL8 and LL16.
  template <MulticastPacketFormat P = LL16, Group G>
  MSCCLPP_DEVICE void broadcastPackets(G const& group, std::uint64_t packetOffset, void const* src, std::uint64_t bytes,
                                       std::uint32_t flag) const {
    check(rangeEnd(packetOffset, P::slotsFor(bytes), P::slotBytes));
    auto* const packets = multicast + packetOffset;
    packSlots<P>(group, static_cast<std::byte const*>(src), bytes, [&](std::uint64_t slot, auto const& payload, bool) {
      P::storeMulticast(packets + slot * P::slotBytes, payload, flag);
    });
  }
  // Waits for the slots that begin there in the own memory, and unpacks `bytes` into `dst`.
  template <MulticastPacketFormat P = LL16, Group G>
  MSCCLPP_DEVICE void unpackPackets(G const& group, std::uint64_t packetOffset, void* dst, std::uint64_t bytes,
                                    std::uint32_t flag) const {
    check(rangeEnd(packetOffset, P::slotsFor(bytes), P::slotBytes));
    copyFromPackets<P>(group, static_cast<std::byte*>(dst), own + packetOffset, bytes, flag, semaphore.watch, -1);
  }

 private:
  MSCCLPP_DEVICE void check(std::uint64_t end) const {
    require(end <= memoryBytes, semaphore.watch, -1, std::uint64_t(layout::Misuse::switchRange), memoryBytes, end);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
