// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A channel of a group of ranks through the switch between their devices: memory of the same size on each, and a
// barrier. Kernels take deviceHandle() as a SwitchChannelDeviceHandle (device/switch_channel.hpp).
//
//   GpuBuffer<float> buffer(device, n, MemoryKind::shareable);
//   SwitchChannel channel(communicator, buffer.data(), buffer.bytes());
//
// Making one is collective over its ranks; what host/multicast.hpp says of windows holds for it.
#pragma once

#include <cstddef>
#include <vector>

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/multicast.hpp"
#include "mscclpp/layout/switch_handle.hpp"

namespace mscclpp {

class SwitchChannel {
 public:
  SwitchChannel(Communicator const& communicator, void* memory, std::size_t bytes, std::vector<int> ranks = {});

  layout::SwitchChannelHandle const& deviceHandle() const noexcept { return handle_; }

 private:
  DeviceMemory counters_;
  MulticastWindow window_;
  layout::SwitchChannelHandle handle_{};
};

}  // namespace mscclpp
