// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A channel to one peer whose memory is mapped here: one-sided put and get by this device's threads, signals, packets.
//
// put() and get() order nothing by themselves. To hand data over: the group puts, `group.sync()`, one thread signal()s;
// the peer's one thread wait()s, its group syncs and reads. Offsets and sizes are bytes; a range outside the buffers is
// refused with a report. The `(…, threadId, numThreads)` forms are the group forms for a thread range.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/packet_channel.hpp"
#include "mscclpp/device/semaphore.hpp"
#include "mscclpp/layout/channel_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// A channel without memory: its signals alone.
using BaseMemoryChannelDeviceHandle = MemoryDevice2DeviceSemaphoreDeviceHandle;

// What kernels have of a MemoryChannel, by value.
struct MemoryChannelDeviceHandle : layout::MemoryChannelHandle {
  MemoryChannelDeviceHandle() = default;
  MSCCLPP_HOST_DEVICE MemoryChannelDeviceHandle(layout::MemoryChannelHandle const& handle)
      : layout::MemoryChannelHandle(handle) {}

  // By one thread each. The relaxed forms only count: they hand over room to write, not data. poll() never waits: it
  // takes a signal if one is there.
  MSCCLPP_DEVICE void signal() const { MemoryDevice2DeviceSemaphoreDeviceHandle(semaphore).signal(); }
  MSCCLPP_DEVICE void relaxedSignal() const { MemoryDevice2DeviceSemaphoreDeviceHandle(semaphore).relaxedSignal(); }
  MSCCLPP_DEVICE void wait() const { MemoryDevice2DeviceSemaphoreDeviceHandle(semaphore).wait(); }
  MSCCLPP_DEVICE void relaxedWait() const { MemoryDevice2DeviceSemaphoreDeviceHandle(semaphore).relaxedWait(); }
  MSCCLPP_DEVICE bool poll() const { return MemoryDevice2DeviceSemaphoreDeviceHandle(semaphore).poll(); }

  // Element `index` of the peer's memory taken as an array of T.
  template <class T>
  MSCCLPP_DEVICE T read(std::uint64_t index) const {
    checkRemote(rangeEnd(sizeof(T), index, sizeof(T)));
    return reinterpret_cast<T const*>(dst)[index];
  }
  template <class T>
  MSCCLPP_DEVICE void write(std::uint64_t index, T const& value) const {
    checkRemote(rangeEnd(sizeof(T), index, sizeof(T)));
    reinterpret_cast<T*>(dst)[index] = value;
  }

  // Copies from this rank's memory to the peer's.
  template <Group G>
  MSCCLPP_DEVICE void put(G const& group, std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes) const {
    checkRemote(rangeEnd(dstOffset, bytes));
    checkLocal(rangeEnd(srcOffset, bytes));
    copy<8>(group, dst + dstOffset, src + srcOffset, bytes);
  }
  // Copies from the peer's memory to this rank's.
  template <Group G>
  MSCCLPP_DEVICE void get(G const& group, std::uint64_t remoteOffset, std::uint64_t localOffset,
                          std::uint64_t bytes) const {
    checkRemote(rangeEnd(remoteOffset, bytes));
    checkLocal(rangeEnd(localOffset, bytes));
    copy<8>(group, src + localOffset, dst + remoteOffset, bytes);
  }
  // Packs `bytes` of this rank's memory into packets in the peer's memory, and waits for nothing; unpackPackets() waits
  // for each packet in the own packet buffer. By all threads of the group, which are whole warps for LL128:
  // packet_channel.hpp.
  template <PacketFormat P = LL16, Group G>
  MSCCLPP_DEVICE void putPackets(G const& group, std::uint64_t targetOffset, std::uint64_t originOffset,
                                 std::uint64_t bytes, std::uint32_t flag) const {
    PacketChannelDeviceHandle<P>(*this).put(group, targetOffset, originOffset, bytes, flag);
  }
  template <PacketFormat P = LL16, Group G>
  MSCCLPP_DEVICE void unpackPackets(G const& group, std::uint64_t packetOffset, std::uint64_t targetOffset,
                                    std::uint64_t bytes, std::uint32_t flag) const {
    PacketChannelDeviceHandle<P>(*this).unpack(group, packetOffset, targetOffset, bytes, flag);
  }

  // By thread `threadId` of `numThreads`, each of which calls.
  MSCCLPP_DEVICE void put(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes, std::uint32_t threadId,
                          std::uint32_t numThreads) const {
    put(threadRange(threadId, numThreads), dstOffset, srcOffset, bytes);
  }
  MSCCLPP_DEVICE void get(std::uint64_t remoteOffset, std::uint64_t localOffset, std::uint64_t bytes,
                          std::uint32_t threadId, std::uint32_t numThreads) const {
    get(threadRange(threadId, numThreads), remoteOffset, localOffset, bytes);
  }
  template <PacketFormat P = LL16>
  MSCCLPP_DEVICE void putPackets(std::uint64_t targetOffset, std::uint64_t originOffset, std::uint64_t bytes,
                                 std::uint32_t threadId, std::uint32_t numThreads, std::uint32_t flag) const {
    putPackets<P>(threadRange(threadId, numThreads), targetOffset, originOffset, bytes, flag);
  }
  template <PacketFormat P = LL16>
  MSCCLPP_DEVICE void unpackPackets(std::uint64_t packetOffset, std::uint64_t targetOffset, std::uint64_t bytes,
                                    std::uint32_t threadId, std::uint32_t numThreads, std::uint32_t flag) const {
    unpackPackets<P>(threadRange(threadId, numThreads), packetOffset, targetOffset, bytes, flag);
  }
  // The older documents' name; the first offset is into the packet buffer, as in unpackPackets().
  template <PacketFormat P = LL16>
  MSCCLPP_DEVICE void getPackets(std::uint64_t packetOffset, std::uint64_t targetOffset, std::uint64_t bytes,
                                 std::uint32_t threadId, std::uint32_t numThreads, std::uint32_t flag) const {
    unpackPackets<P>(threadRange(threadId, numThreads), packetOffset, targetOffset, bytes, flag);
  }

 private:
  MSCCLPP_DEVICE void checkRemote(std::uint64_t end) const {
    require(end <= dstBytes, semaphore.watch, semaphore.peer, std::uint64_t(layout::Misuse::remoteRange), dstBytes,
            end);
  }
  MSCCLPP_DEVICE void checkLocal(std::uint64_t end) const {
    require(end <= srcBytes, semaphore.watch, semaphore.peer, std::uint64_t(layout::Misuse::localRange), srcBytes, end);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
