// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/cuda/cuda_error.hpp"

#include <atomic>
#include <cstddef>

#include "base/format.hpp"
#include "mscclpp/host/runtime.hpp"

namespace mscclpp {
namespace {

std::atomic<Runtime*> machineOfDevices{nullptr};

// At the end of a process CUDA goes before objects that still have memory there; nothing is lost by that.
bool fatal(cudaError_t code) { return code != cudaSuccess && code != cudaErrorCudartUnloading; }

// What any call for the current device would answer.
cudaError_t health() {
  auto mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  std::size_t free = 0;
  std::size_t total = 0;
  auto const code = cudaMemGetInfo(&free, &total);
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  return code;
}

void lose(int device, std::string const& reason) noexcept {
  try {
    if (auto* const machine = machineOfDevices.load()) machine->lose(device, reason);
  } catch (std::exception const& error) {
    writeLog(LogLevel::error, error.what());
  }
}

}  // namespace

std::string describe(cudaError_t code) {
  return fmt::format("{} ({})", cudaGetErrorString(code), cudaGetErrorName(code));
}

void check(cudaError_t code, std::string_view operation) {
  if (code != cudaSuccess) failCall(fmt::format("{}: {}", operation, describe(code)));
}

void logFailure(cudaError_t code, std::string_view operation) noexcept {
  try {
    check(code, operation);
  } catch (std::exception const& error) {
    writeLog(LogLevel::error, error.what());
  }
}

void selectDevice(int device) {
  auto const code = cudaSetDevice(device);
  if (code == cudaSuccess) return;
  auto const text = fmt::format("select CUDA device {}: {}", device, describe(code));
  if (fatal(code)) lose(device, text);
  (void)cudaGetLastError();
  throw Error(ErrorCode::deviceError, text);
}

void failCall(std::string const& text) {
  int device = 0;
  if (fatal(health()) && cudaGetDevice(&device) == cudaSuccess) lose(device, text);
  (void)cudaGetLastError();
  throw Error(ErrorCode::deviceError, text);
}

void reportLossesTo(Runtime& machine) noexcept { machineOfDevices = &machine; }

}  // namespace mscclpp
