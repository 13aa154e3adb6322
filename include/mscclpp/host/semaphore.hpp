// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Host side of the semaphore between the devices of two ranks. Holds its counters in device memory; kernels use the
// handle. Copies share the counters.
#pragma once

#include <memory>

#include "mscclpp/layout/channel_handle.hpp"

namespace mscclpp {

class Communicator;

// One rank's end: its kernels signal those of the peer, and wait for their signals.
class MemoryDevice2DeviceSemaphore {
 public:
  // Both ranks make it, with the same tag, naming each other.
  MemoryDevice2DeviceSemaphore(Communicator const& communicator, int peer, int tag = 0);

  // The other rank; and what kernels make a MemoryDevice2DeviceSemaphoreDeviceHandle of, as long as a copy of this is
  // there.
  int peer() const noexcept;
  layout::SemaphoreHandle deviceHandle() const;

 private:
  struct Impl;
  std::shared_ptr<Impl const> impl_;
};

}  // namespace mscclpp
