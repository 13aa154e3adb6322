// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packets between this rank and one peer: putPackets() packs local memory into the peer's packet buffer,
// unpackPackets() waits for each packet in the own buffer and unpacks it into local memory. No signal is needed.
//
// `bytes` counts data. Offsets into packet buffers count packet bytes, offsets into plain memory data bytes. The flag
// must differ for each reuse of a slot and must not be 0. Sender and receiver use the same format, offsets and bytes;
// for LL128 the group is made of whole warps and the link delivers lines whole.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/layout/channel_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// Packs `bytes` of `src` and calls storeSlot(slot, payload, active) for each slot; with LL128 also for inactive ones.
template <PacketFormat P, Group G, class StoreSlot>
MSCCLPP_DEVICE void packSlots(G const& group, std::byte const* src, std::uint64_t bytes, StoreSlot const& storeSlot) {
  using Reader = PayloadReader<std::uint8_t, P::words, P::granule>;
  Reader const reader({reinterpret_cast<std::uint8_t const*>(src), bytes});
  auto const slots = P::slotsFor(bytes);
  auto const rounded = ceilDiv<std::uint64_t>(slots, 32) * 32;  // whole warps go round together
  for (std::uint64_t slot = group.rank(); slot < (P::wholeWarp ? rounded : slots); slot += group.size()) {
    bool const active = slot < slots;
    auto const payload =
        active ? reader.read(reader.window(P::dataOffset(slot)), 0, P::dataBytes(slot % 8)) : Payload<P::words>{};
    storeSlot(slot, payload, active);
  }
}

// Packs `bytes` of `src` into the slots at `packets`, which may be a peer's memory.
template <PacketFormat P, Group G>
MSCCLPP_DEVICE void copyToPackets(G const& group, std::byte* packets, std::byte const* src, std::uint64_t bytes,
                                  std::uint32_t flag) {
  packSlots<P>(group, src, bytes, [&](std::uint64_t slot, Payload<P::words> const& payload, bool active) {
    P::store(packets + slot * P::slotBytes, payload, flag, active);
  });
}

// Waits for the slots at `packets`, in this device's memory, and unpacks `bytes` into `dst`.
template <PacketFormat P, Group G>
MSCCLPP_DEVICE void copyFromPackets(G const& group, std::byte* dst, std::byte const* packets, std::uint64_t bytes,
                                    std::uint32_t flag, layout::Watch* watch, std::int32_t peer) {
  using Writer = PayloadWriter<std::uint8_t, P::words, P::granule>;
  Writer const writer({reinterpret_cast<std::uint8_t*>(dst), bytes});
  auto const slots = P::slotsFor(bytes);
  auto const rounded = ceilDiv<std::uint64_t>(slots, 32) * 32;
  for (std::uint64_t slot = group.rank(); slot < (P::wholeWarp ? rounded : slots); slot += group.size()) {
    std::byte const* const from[1] = {packets + slot * P::slotBytes};
    bool const active[1] = {slot < slots};
    Payload<P::words> payload[1];
    awaitPackets<P>(watch, from, active, flag, payload, [&](unsigned) -> WaitFor {
      return {layout::WaitKind::packet, peer, slot, flag};
    });
    if (active[0]) writer.write(writer.window(P::dataOffset(slot)), 0, payload[0], P::dataBytes(slot % 8));
  }
}

// What kernels have of a MemoryChannel, for packets of format P. All threads of a group call, at the same place.
template <PacketFormat P>
struct PacketChannelDeviceHandle : layout::MemoryChannelHandle {
  PacketChannelDeviceHandle() = default;
  MSCCLPP_HOST_DEVICE PacketChannelDeviceHandle(layout::MemoryChannelHandle const& handle)
      : layout::MemoryChannelHandle(handle) {}

  // Packs `bytes` from `originOffset` of the own memory into slots from `targetOffset` of the peer's on. Waits for
  // nothing: that the peer has taken what lay there is the caller's to know.
  template <Group G>
  MSCCLPP_DEVICE void put(G const& group, std::uint64_t targetOffset, std::uint64_t originOffset, std::uint64_t bytes,
                          std::uint32_t flag) const {
    auto const packetEnd = rangeEnd(targetOffset, P::slotsFor(bytes), P::slotBytes);
    require(packetEnd <= dstBytes, semaphore.watch, semaphore.peer, std::uint64_t(layout::Misuse::remoteRange),
            dstBytes, packetEnd);
    checkLocal(rangeEnd(originOffset, bytes));
    copyToPackets<P>(group, dst + targetOffset, src + originOffset, bytes, flag);
  }

  // Waits for the slots from `packetOffset` of the packet buffer on, and unpacks `bytes` to `targetOffset` of the own
  // memory, which the group's other threads see behind a barrier.
  template <Group G>
  MSCCLPP_DEVICE void unpack(G const& group, std::uint64_t packetOffset, std::uint64_t targetOffset,
                             std::uint64_t bytes, std::uint32_t flag) const {
    auto const packetEnd = rangeEnd(packetOffset, P::slotsFor(bytes), P::slotBytes);
    require(packetEnd <= packetBytes, semaphore.watch, semaphore.peer, std::uint64_t(layout::Misuse::packetRange),
            packetBytes, packetEnd);
    checkLocal(rangeEnd(targetOffset, bytes));
    copyFromPackets<P>(group, src + targetOffset, packetBuffer + packetOffset, bytes, flag, semaphore.watch,
                       semaphore.peer);
  }

 private:
  MSCCLPP_DEVICE void checkLocal(std::uint64_t end) const {
    require(end <= srcBytes, semaphore.watch, semaphore.peer, std::uint64_t(layout::Misuse::localRange), srcBytes, end);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
