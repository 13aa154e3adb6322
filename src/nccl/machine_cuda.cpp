// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>

#include "mscclpp/jit/plan_algorithm.hpp"
#include "mscclpp/launch/cuda_driver.hpp"
#include "nccl/machine.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {

DeviceKind const machine = DeviceKind::cuda;

Device currentDevice() {
  int ordinal = 0;
  if (auto const code = cudaGetDevice(&ordinal); code != cudaSuccess) {
    refuse(ncclUnhandledCudaError, "ask for the current device: {}", cudaGetErrorString(code));
  }
  return {machine, ordinal};
}

std::shared_ptr<Algorithm const> planAlgorithm(dsl::ExecutionPlan const& plan) { return jit::planAlgorithm(plan); }

KeepDevice::KeepDevice(Device device) {
  if (device.kind != DeviceKind::cuda) return;
  // The driver answers sooner, for a device that has been launched on.
  if (device.ordinal < arch::Driver::mostDevices && arch::Driver::instance().isOn(device.ordinal)) return;
  int before = -1;
  if (cudaGetDevice(&before) == cudaSuccess) {
    if (before == device.ordinal) return;
    before_ = before;
  }
  if (auto const code = cudaSetDevice(device.ordinal); code != cudaSuccess) {
    refuse(ncclUnhandledCudaError, "make device {} the current one: {}", device.ordinal, cudaGetErrorString(code));
  }
}

KeepDevice::~KeepDevice() {
  if (before_ >= 0) (void)cudaSetDevice(before_);
}

}  // namespace mscclpp::nccl
