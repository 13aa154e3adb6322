// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL's interface has of each machine: the calling thread's device, and how plans run. One source for each.
#pragma once

#include <memory>

#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp::nccl {

extern DeviceKind const machine;
// The calling thread's. Throws where there is none.
Device currentDevice();
// Throws as dsl::planAlgorithm() does.
std::shared_ptr<Algorithm const> planAlgorithm(dsl::ExecutionPlan const& plan);
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
