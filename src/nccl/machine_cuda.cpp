// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>

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

KeepDevice::KeepDevice() {
  if (cudaGetDevice(&ordinal_) != cudaSuccess) ordinal_ = -1;
}

KeepDevice::KeepDevice(Device device) : KeepDevice() {
  if (auto const code = cudaSetDevice(device.ordinal); code != cudaSuccess) {
    refuse(ncclUnhandledCudaError, "make device {} the current one: {}", device.ordinal, cudaGetErrorString(code));
  }
}

KeepDevice::~KeepDevice() {
  int now = -1;
  if (ordinal_ >= 0 && (cudaGetDevice(&now) != cudaSuccess || now != ordinal_)) (void)cudaSetDevice(ordinal_);
}

}  // namespace mscclpp::nccl
