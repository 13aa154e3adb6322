// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// FIFOs and port channels as kernels receive them: the data members only. The operations are in device/fifo.hpp and
// device/port_channel.hpp.
#pragma once

#include <cstdint>

#include "mscclpp/layout/trigger.hpp"
#include "mscclpp/layout/watch.hpp"

namespace mscclpp::layout {

// A queue to a proxy, of which kernels have the end that pushes.
struct FifoHandle {
  Trigger* slots;            // `size` of them, in memory of the host
  std::uint64_t* tail;       // there too: how many triggers the proxy has taken
  std::uint64_t* head;       // in memory of the device: how many were begun
  std::uint64_t* tailCache;  // there too: some earlier value of `tail`
  Watch* watch;
  std::uint32_t size;   // a power of two
  std::uint32_t proxy;  // shown in reports
};

// Signals to and from one peer, through a proxy.
struct BasePortChannelHandle {
  FifoHandle fifo;
  std::uint64_t* inbound;        // in this rank's memory: signals that arrived, or abandonedSignal
  std::uint64_t* expected;       // in this rank's memory: signals waited for so far
  std::uint64_t const* flushed;  // in memory of the host: one more than the position of the latest completed flush
  std::int32_t peer;
  std::uint32_t semaphore;  // its number in the proxy service
};

// From one memory of this rank to one of the peer, by their ids in the proxy service.
struct PortChannelHandle {
  BasePortChannelHandle base;
  std::uint32_t dstMemory;
  std::uint32_t srcMemory;
  std::uint64_t dstBytes;
  std::uint64_t srcBytes;
};

}  // namespace mscclpp::layout
