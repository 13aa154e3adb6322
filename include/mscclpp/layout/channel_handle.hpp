// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Semaphores and memory channels as kernels receive them: the data members only. The operations are in
// device/semaphore.hpp, device/memory_channel.hpp and device/packet_channel.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/layout/watch.hpp"

namespace mscclpp::layout {

// One direction pair between two ranks. `inbound` is written only by the peer, `expected` only by this rank.
struct SemaphoreHandle {
  std::uint64_t* inbound;        // in this rank's memory: signals that arrived
  std::uint64_t* remoteInbound;  // the peer's `inbound`, as mapped here
  std::uint64_t* expected;       // in this rank's memory: signals waited for so far
  Watch* watch;                  // may be null: then a wait that never ends traps after a fixed limit
  std::int32_t peer;
  std::uint32_t id;  // shown in reports
};

// Puts go from `src` to `dst`, gets the other way.
struct MemoryChannelHandle {
  SemaphoreHandle semaphore;
  std::byte* dst;           // the peer's memory, as mapped here
  std::byte* src;           // this rank's memory
  std::byte* packetBuffer;  // this rank's memory that the peer writes packets to; may be null
  std::uint64_t dstBytes;
  std::uint64_t srcBytes;
  std::uint64_t packetBytes;
};

}  // namespace mscclpp::layout
