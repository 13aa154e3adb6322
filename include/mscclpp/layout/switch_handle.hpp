// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Switch channels as kernels receive them: the data members only. The operations are in device/switch_channel.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/layout/watch.hpp"

namespace mscclpp::layout {

// A counter that lies at the same place in every rank's memory and is counted up through the switch.
struct SwitchSemaphoreHandle {
  std::uint64_t* inbound;           // in this rank's memory: signals of all ranks that arrived
  std::uint64_t* multicastInbound;  // everybody's `inbound`, for multicast accesses
  std::uint64_t* expected;          // in this rank's memory: signals waited for so far
  Watch* watch;                     // may be null: then a wait that never ends traps after a fixed limit
  std::int32_t ranks;
  std::uint32_t id;  // shown in reports
};

// The semaphore, and memory of every rank under one address.
struct SwitchChannelHandle {
  SwitchSemaphoreHandle semaphore;
  std::byte* multicast;       // everybody's memory, for multicast accesses
  std::byte* own;             // this rank's
  std::uint64_t memoryBytes;  // the same on every rank
  std::int32_t rank;          // of this process among the channel's
};

}  // namespace mscclpp::layout
