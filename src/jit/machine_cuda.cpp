// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>

#include <cstring>

#include "base/format.hpp"
#include "jit/cuda_compiler.hpp"
#include "jit/machine.hpp"
#include "mscclpp/launch/cuda_driver.hpp"

namespace mscclpp::jit {
namespace {

void check(cudaError_t code, std::string const& what) {
  if (code != cudaSuccess)
    fail(ErrorCode::deviceError, "{}: {}: {}", what, cudaGetErrorName(code), cudaGetErrorString(code));
}

struct DriverKernel final : AnyKernel::Loaded {
  DriverKernel(CUfunction function, Device device, std::string type)
      : function_(function), device_(device), type_(std::move(type)) {}

  void launch(Stream const& stream, LaunchShape const& shape, void const* arguments) const override {
    if (!(stream.device() == device_)) {
      fail(ErrorCode::invalidUsage, "kernel {} was compiled for CUDA device {}, the stream is one of {}", type_,
           device_.ordinal, stream.device().ordinal);
    }
    auto const& driver = arch::Driver::instance();
    if (!driver.isOn(device_.ordinal)) {
      check(cudaSetDevice(device_.ordinal), "launch: cudaSetDevice");
      driver.isNowOn(device_.ordinal);
    }
    void* parameters[] = {const_cast<void*>(arguments)};
    if (auto const code = driver.launch(function_, stream, shape, parameters); code != CUDA_SUCCESS) {
      fail(ErrorCode::deviceError, "launch of kernel {} with {} blocks of {} threads and {} bytes of shared memory: {}",
           type_, shape.blocks, shape.threads, shape.dynamicShared, driver.nameOf(code));
    }
  }

 private:
  CUfunction function_;
  Device device_;
  std::string type_;
};

// Makes a device, which has begun, the current one of this thread, which may load code even while a stream is captured.
class OnDevice {
 public:
  explicit OnDevice(Device device) {
    check(cudaGetDevice(&before_), "load a kernel: ask for the current device");
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    auto code = cudaSetDevice(device.ordinal);
    if (code == cudaSuccess) code = cudaFree(nullptr);
    if (code == cudaSuccess) return;
    putBack();
    check(code, "load a kernel: begin on the device");
  }
  ~OnDevice() { putBack(); }
  OnDevice(OnDevice const&) = delete;
  OnDevice& operator=(OnDevice const&) = delete;

 private:
  void putBack() {
    (void)cudaSetDevice(before_);
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  }

  int before_ = 0;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class CudaMachine final : public Machine {
 public:
  Target targetOf(Device device) override {
    int major = 0;
    int minor = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.ordinal),
          "ask for the device's kind");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.ordinal),
          "ask for the device's kind");
    return {DeviceKind::cuda, 10 * major + minor};
  }
  std::string compiler(Target const& target) override {
    return fmt::format("{} sm_{}", CudaCompiler::instance().version(), target.architecture);
  }
  // The entry's name and the image, with an end between them.
  std::string compile(Request const& request, Target const& target) override {
    auto image = CudaCompiler::instance().compile(request, target.architecture);
    return image.entry + '\0' + image.bytes;
  }
  std::shared_ptr<AnyKernel::Loaded const> load(std::string const& compiled, Device device,
                                                std::string const& type) override {
    OnDevice const here(device);
    auto const& driver = arch::Driver::instance();
    CUfunction function = nullptr;
    auto const end = std::strlen(compiled.c_str());
    // Stays loaded: graphs may have it.
    auto const code = driver.load(compiled.data() + end + 1, compiled.c_str(), function);
    if (code != CUDA_SUCCESS) {
      fail(ErrorCode::deviceError, "load kernel {} on CUDA device {}: {}", type, device.ordinal, driver.nameOf(code));
    }
    return std::make_shared<DriverKernel>(function, device, type);
  }
};

}  // namespace

Machine& cudaMachine() {
  static CudaMachine machine;
  return machine;
}

}  // namespace mscclpp::jit
