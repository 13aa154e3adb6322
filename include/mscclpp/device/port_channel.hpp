// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A channel to one peer whose data a proxy moves: the kernel pushes a trigger and goes on.
//
// put() copies from this rank's memory to the peer's, some time later. signal() ends one wait() at the peer, after
// which the peer sees all that was put before. flush() returns when all that this channel has put and signalled is
// complete: the source may be written again. Puts of one channel may arrive in any order; its signals and flushes keep
// the order of the calls. Nothing else is ordered. One thread at a time waits on a channel; any may call the rest.
//
// The plain forms are for one thread, which must be ordered after those that wrote the source. The group forms are
// called by all threads of the group: they meet, and one of them acts; those of wait() only meet behind it, those of
// flush() on both sides.
// Sizes and offsets are bytes below 4 GiB; what does not fit, or ends outside of the memory, is refused with a report.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/fifo.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/layout/port_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// With the memories named at each call, by their ids in the proxy service.
struct BasePortChannelDeviceHandle : layout::BasePortChannelHandle {
  BasePortChannelDeviceHandle() = default;
  MSCCLPP_HOST_DEVICE BasePortChannelDeviceHandle(layout::BasePortChannelHandle const& handle)
      : layout::BasePortChannelHandle(handle) {}

  // Each pushes one trigger, putWithSignal() and putWithSignalAndFlush() too: the data goes first, then the signal.
  // They wait for room in the FIFO, those that flush also for the proxy's answer.
  MSCCLPP_DEVICE void put(std::uint32_t dst, std::uint64_t dstOffset, std::uint32_t src, std::uint64_t srcOffset,
                          std::uint64_t bytes) const {
    push(layout::triggerData, dst, dstOffset, src, srcOffset, bytes);
  }
  MSCCLPP_DEVICE void signal() const { push(layout::triggerFlag, 0, 0, 0, 0, 0); }
  MSCCLPP_DEVICE void putWithSignal(std::uint32_t dst, std::uint64_t dstOffset, std::uint32_t src,
                                    std::uint64_t srcOffset, std::uint64_t bytes) const {
    push(layout::triggerData | layout::triggerFlag, dst, dstOffset, src, srcOffset, bytes);
  }
  MSCCLPP_DEVICE void putWithSignalAndFlush(std::uint32_t dst, std::uint64_t dstOffset, std::uint32_t src,
                                            std::uint64_t srcOffset, std::uint64_t bytes) const {
    awaitFlush(
        push(layout::triggerData | layout::triggerFlag | layout::triggerSync, dst, dstOffset, src, srcOffset, bytes));
  }
  MSCCLPP_DEVICE void flush() const { awaitFlush(push(layout::triggerSync, 0, 0, 0, 0, 0)); }

  // True, and one signal consumed, if a signal is there.
  MSCCLPP_DEVICE bool poll() const {
    auto const next = *expected + 1;
    auto const seen = load<Order::acquire, Scope::system>(inbound);
    if (seen < next) return false;
    *expected = next;
    checkAbandoned(seen, next);
    return true;
  }
  MSCCLPP_DEVICE void wait() const {
    auto const next = *expected + 1;
    *expected = next;
    std::uint64_t found = 0;
    mscclpp::poll(fifo.watch, {layout::WaitKind::portSignal, peer, semaphore, next}, [&](std::uint64_t& seen) {
      seen = found = load<Order::acquire, Scope::system>(inbound);
      return found >= next;
    });
    checkAbandoned(found, next);
  }

  // The same for all threads of a group, of which the first acts.
  template <SyncGroup G>
  MSCCLPP_DEVICE void put(G const& group, std::uint32_t dst, std::uint64_t dstOffset, std::uint32_t src,
                          std::uint64_t srcOffset, std::uint64_t bytes) const {
    syncWhole(group);
    if (group.rank() == 0) put(dst, dstOffset, src, srcOffset, bytes);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void signal(G const& group) const {
    syncWhole(group);
    if (group.rank() == 0) signal();
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void putWithSignal(G const& group, std::uint32_t dst, std::uint64_t dstOffset, std::uint32_t src,
                                    std::uint64_t srcOffset, std::uint64_t bytes) const {
    syncWhole(group);
    if (group.rank() == 0) putWithSignal(dst, dstOffset, src, srcOffset, bytes);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void putWithSignalAndFlush(G const& group, std::uint32_t dst, std::uint64_t dstOffset,
                                            std::uint32_t src, std::uint64_t srcOffset, std::uint64_t bytes) const {
    syncWhole(group);
    if (group.rank() == 0) putWithSignalAndFlush(dst, dstOffset, src, srcOffset, bytes);
    syncWhole(group);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void flush(G const& group) const {
    syncWhole(group);
    if (group.rank() == 0) flush();
    syncWhole(group);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void wait(G const& group) const {
    if (group.rank() == 0) wait();
    syncWhole(group);
  }

 private:
  MSCCLPP_DEVICE std::uint64_t push(std::uint32_t type, std::uint32_t dst, std::uint64_t dstOffset, std::uint32_t src,
                                    std::uint64_t srcOffset, std::uint64_t bytes) const {
    requireAlone((bytes | dstOffset | srcOffset) <= layout::maxTriggerBytes, fifo.watch, peer,
                 std::uint64_t(layout::Misuse::triggerRange), layout::maxTriggerBytes, bytes | dstOffset | srcOffset);
    requireAlone((dst | src) < layout::maxTriggerMemories, fifo.watch, peer,
                 std::uint64_t(layout::Misuse::triggerMemory), layout::maxTriggerMemories - 1, dst < src ? src : dst);
    return FifoDeviceHandle(fifo).push(layout::encode({bytes, srcOffset, dstOffset, src, dst, type, semaphore}));
  }
  MSCCLPP_DEVICE void awaitFlush(std::uint64_t position) const {
    pollAnswer(fifo.watch, {layout::WaitKind::portFlush, peer, semaphore, position + 1},
               [this, position](std::uint64_t& seen) {
                 seen = load<Order::acquire, Scope::system>(flushed);
                 return seen > position;
               });
  }
  MSCCLPP_DEVICE void checkAbandoned(std::uint64_t seen, std::uint64_t next) const {
    if (seen >= layout::abandonedSignal) [[unlikely]]
      giveUp(fifo.watch, {layout::WaitKind::abandoned, peer, semaphore, next}, seen, 0);
  }
};

// Between one memory of this rank and one of the peer.
struct PortChannelDeviceHandle : layout::PortChannelHandle {
  PortChannelDeviceHandle() = default;
  MSCCLPP_HOST_DEVICE PortChannelDeviceHandle(layout::PortChannelHandle const& handle)
      : layout::PortChannelHandle(handle) {}

  // As BasePortChannelDeviceHandle's; poll() takes a signal if one is there. With one offset: it is that in both
  // memories.
  MSCCLPP_DEVICE void put(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes) const {
    check(dstOffset, srcOffset, bytes);
    channel().put(dstMemory, dstOffset, srcMemory, srcOffset, bytes);
  }
  MSCCLPP_DEVICE void put(std::uint64_t offset, std::uint64_t bytes) const { put(offset, offset, bytes); }
  MSCCLPP_DEVICE void signal() const { channel().signal(); }
  MSCCLPP_DEVICE void putWithSignal(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes) const {
    check(dstOffset, srcOffset, bytes);
    channel().putWithSignal(dstMemory, dstOffset, srcMemory, srcOffset, bytes);
  }
  MSCCLPP_DEVICE void putWithSignal(std::uint64_t offset, std::uint64_t bytes) const {
    putWithSignal(offset, offset, bytes);
  }
  MSCCLPP_DEVICE void putWithSignalAndFlush(std::uint64_t dstOffset, std::uint64_t srcOffset,
                                            std::uint64_t bytes) const {
    check(dstOffset, srcOffset, bytes);
    channel().putWithSignalAndFlush(dstMemory, dstOffset, srcMemory, srcOffset, bytes);
  }
  MSCCLPP_DEVICE void putWithSignalAndFlush(std::uint64_t offset, std::uint64_t bytes) const {
    putWithSignalAndFlush(offset, offset, bytes);
  }
  MSCCLPP_DEVICE void flush() const { channel().flush(); }
  MSCCLPP_DEVICE bool poll() const { return channel().poll(); }
  MSCCLPP_DEVICE void wait() const { channel().wait(); }

  template <SyncGroup G>
  MSCCLPP_DEVICE void put(G const& group, std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes) const {
    check(dstOffset, srcOffset, bytes);
    channel().put(group, dstMemory, dstOffset, srcMemory, srcOffset, bytes);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void signal(G const& group) const {
    channel().signal(group);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void putWithSignal(G const& group, std::uint64_t dstOffset, std::uint64_t srcOffset,
                                    std::uint64_t bytes) const {
    check(dstOffset, srcOffset, bytes);
    channel().putWithSignal(group, dstMemory, dstOffset, srcMemory, srcOffset, bytes);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void putWithSignalAndFlush(G const& group, std::uint64_t dstOffset, std::uint64_t srcOffset,
                                            std::uint64_t bytes) const {
    check(dstOffset, srcOffset, bytes);
    channel().putWithSignalAndFlush(group, dstMemory, dstOffset, srcMemory, srcOffset, bytes);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void flush(G const& group) const {
    channel().flush(group);
  }
  template <SyncGroup G>
  MSCCLPP_DEVICE void wait(G const& group) const {
    channel().wait(group);
  }

 private:
  MSCCLPP_DEVICE BasePortChannelDeviceHandle channel() const { return base; }
  MSCCLPP_DEVICE void check(std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes) const {
    auto const dstEnd = rangeEnd(dstOffset, bytes), srcEnd = rangeEnd(srcOffset, bytes);
    requireAlone(dstEnd <= dstBytes, base.fifo.watch, base.peer, std::uint64_t(layout::Misuse::remoteRange), dstBytes,
                 dstEnd);
    requireAlone(srcEnd <= srcBytes, base.fifo.watch, base.peer, std::uint64_t(layout::Misuse::localRange), srcBytes,
                 srcEnd);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
