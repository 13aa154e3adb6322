// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL's interface takes from the thread that calls: the device. One source for each machine.
#pragma once

#include "mscclpp/host/device.hpp"

namespace mscclpp::nccl {

extern DeviceKind const machine;
// The calling thread's. Throws where there is none.
Device currentDevice();
// The current device is the caller's again at its end.
class KeepDevice {
 public:
  KeepDevice();
  // It is that one meanwhile.
  explicit KeepDevice(Device device);
  ~KeepDevice();
  KeepDevice(KeepDevice const&) = delete;
  KeepDevice& operator=(KeepDevice const&) = delete;

 private:
  int ordinal_ = -1;  // of a thread that has none yet
};

}  // namespace mscclpp::nccl
