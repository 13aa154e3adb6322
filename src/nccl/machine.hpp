// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL's interface takes from the thread that calls: the device. One source for each machine.
#pragma once

#include "mscclpp/host/device.hpp"

namespace mscclpp::nccl {

extern DeviceKind const machine;
// The calling thread's. Throws where there is none.
Device currentDevice();
// Makes a device the current one; at its end it is again the one that was the caller's.
class KeepDevice {
 public:
  explicit KeepDevice(Device device);
  ~KeepDevice();
  KeepDevice(KeepDevice const&) = delete;
  KeepDevice& operator=(KeepDevice const&) = delete;

 private:
  int before_ = -1;  // -1: there is nothing to be put back
};

}  // namespace mscclpp::nccl
