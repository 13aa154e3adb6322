// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Port channels and the service that works for them: it holds semaphores and memories by number, and one proxy or more
// that carry out what kernels push.
//
//   ProxyService service(communicator);
//   auto semaphore = service.buildAndAddSemaphore(communicator.connect(peer));   // by both ranks
//   auto channel = service.portChannel(semaphore, service.addMemory(peersMemory), service.addMemory(ownMemory));
//   service.startProxy();
//   launch(..., channel.deviceHandle());                    // PortChannelDeviceHandle in the kernel
//   ... service.stopProxy();
//
// A connection is served by one of the proxies, for all of its channels; connections are dealt out in turn. One peer
// that is slow, or a flush of it, holds up no other. Destroy the service before the communicator, and when no kernel
// uses its channels any more. When a connection or a trigger fails, the proxy ends as host/proxy.hpp says, and the
// peers of its channels are told as far as their transport can.
#pragma once

#include <cstdint>
#include <memory>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/port_semaphore.hpp"
#include "mscclpp/host/proxy.hpp"
#include "mscclpp/layout/port_handle.hpp"

namespace mscclpp {

using SemaphoreId = std::uint32_t;
using MemoryId = std::uint32_t;

// Signals, and puts between memories that are named at each call.
class BasePortChannel {
 public:
  layout::BasePortChannelHandle deviceHandle() const noexcept { return handle_; }
  int peer() const noexcept { return handle_.peer; }

 private:
  friend class ProxyService;
  std::shared_ptr<void> keepAlive_;
  layout::BasePortChannelHandle handle_{};
};

// Between one memory of this rank and one of the peer.
class PortChannel {
 public:
  layout::PortChannelHandle deviceHandle() const noexcept { return handle_; }
  int peer() const noexcept { return handle_.base.peer; }

 private:
  friend class ProxyService;
  std::shared_ptr<void> keepAlive_;
  layout::PortChannelHandle handle_{};
};

class ProxyService {
 public:
  // The constructor throws invalidUsage for fewer than 1 proxy, and for a size of FIFO that is no power of two.
  struct Options {
    int proxies = 1;
    std::uint32_t fifoSize = Fifo::defaultSize;
  };

  explicit ProxyService(Communicator const& communicator);
  ProxyService(Communicator const& communicator, Options const& options);
  ~ProxyService();
  ProxyService(ProxyService const&) = delete;
  ProxyService& operator=(ProxyService const&) = delete;

  // At most 1024 semaphores and 512 memories; throw invalidUsage beyond that. Also while the proxies run.
  SemaphoreId addSemaphore(Host2DeviceSemaphore const& semaphore);
  // Both ranks call it, with the same tag.
  SemaphoreId buildAndAddSemaphore(std::shared_ptr<Connection> connection, int tag = 0);
  // Own memory, or a peer's.
  MemoryId addMemory(RegisteredMemory const& memory);
  MemoryId nextMemoryId(std::uint32_t count = 1) const;  // that addMemory will return next; throws where none is left

  // For puts between any memories of this service. Throws invalidUsage for a semaphore that it does not have.
  BasePortChannel basePortChannel(SemaphoreId semaphore) const;
  // `dst` is memory of the semaphore's peer, `src` of this rank; both registered for its transport. Throws invalidUsage
  // where that is not so.
  PortChannel portChannel(SemaphoreId semaphore, MemoryId dst, MemoryId src) const;

  void startProxy();
  void stopProxy() noexcept;
  // One step of one proxy that does not block, in place of startProxy(). Whether it did anything.
  bool progress(int proxy = 0);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace mscclpp
