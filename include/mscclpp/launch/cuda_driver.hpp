// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The driver's own way to start a kernel. The runtime looks the kernel up and translates the launch each time, which
// took 0.4 us of the host's time on a machine with an H200; here that happens at the first launch on a device. The
// driver is found at run time, so no program links it.
#pragma once

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>

#include "mscclpp/base/config.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

class Driver {
 public:
  static constexpr int mostDevices = 64;

  static Driver const& instance() {
    static Driver const driver;
    return driver;
  }

  // Whether the calling thread is on that device, by what it is asked first; false where only the runtime can tell.
  bool isOn(int device) const {
    CUcontext current = nullptr;
    if (currentContext_ == nullptr || currentContext_(&current) != CUDA_SUCCESS || current == nullptr) return false;
    return current == contexts()[device].load(std::memory_order_acquire);
  }
  // The thread has just been set on that device.
  void isNowOn(int device) const {
    CUcontext current = nullptr;
    if (currentContext_ != nullptr && currentContext_(&current) == CUDA_SUCCESS) {
      contexts()[device].store(current, std::memory_order_release);
    }
  }
  // The runtime says more of what it refuses.
  CUresult launch(CUfunction function, Stream const& stream, LaunchShape const& shape, void** parameters) const {
    CUlaunchAttribute attributes[2];
    unsigned count = 0;
    if (shape.overlapPrevious) {
      attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attributes[count++].value.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.clusterBlocks != 1) {
      attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attributes[count].value.clusterDim.x = shape.clusterBlocks;
      attributes[count].value.clusterDim.y = 1;
      attributes[count++].value.clusterDim.z = 1;
    }
    CUlaunchConfig const config{.gridDimX = shape.blocks,
                                .gridDimY = 1,
                                .gridDimZ = 1,
                                .blockDimX = shape.threads,
                                .blockDimY = 1,
                                .blockDimZ = 1,
                                .sharedMemBytes = static_cast<unsigned>(shape.dynamicShared),
                                .hStream = static_cast<CUstream>(stream.native()),
                                .attrs = attributes,
                                .numAttrs = count};
    return launch_(&config, function, parameters, nullptr);
  }
  bool canLaunch() const { return launch_ != nullptr && currentContext_ != nullptr; }

  // A kernel of an image, on the current device, for good; it may have all the shared memory that there is.
  CUresult load(void const* image, char const* name, CUfunction& function) const {
    CUmodule module = nullptr;
    if (load_ == nullptr || function_ == nullptr || setAttribute_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto const code = load_(&module, image); code != CUDA_SUCCESS) return code;
    if (auto const code = function_(&function, module, name); code != CUDA_SUCCESS) return code;
    constexpr int most = 227 << 10;
    (void)setAttribute_(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most);
    return CUDA_SUCCESS;
  }
  char const* nameOf(CUresult code) const {
    char const* name = nullptr;
    return errorName_ != nullptr && errorName_(code, &name) == CUDA_SUCCESS ? name : "refused by the CUDA driver";
  }

 private:
  Driver() {
    find("cuLaunchKernelEx", 11060, launch_);
    find("cuCtxGetCurrent", 4000, currentContext_);
    find("cuModuleLoadData", 2000, load_);
    find("cuModuleGetFunction", 2000, function_);
    find("cuFuncSetAttribute", 9000, setAttribute_);
    find("cuGetErrorName", 6000, errorName_);
  }

  template <class Function>
  static void find(char const* name, [[maybe_unused]] unsigned version, Function& function) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    auto const code = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &result);
#else
    auto const code = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &result);
#endif
    if (code == cudaSuccess && result == cudaDriverEntryPointSuccess) function = reinterpret_cast<Function>(address);
  }

  static std::atomic<CUcontext>* contexts() {
    static std::atomic<CUcontext> all[mostDevices]{};
    return all;
  }

  PFN_cuLaunchKernelEx_v11060 launch_ = nullptr;
  PFN_cuCtxGetCurrent_v4000 currentContext_ = nullptr;
  PFN_cuModuleLoadData_v2000 load_ = nullptr;
  PFN_cuModuleGetFunction_v2000 function_ = nullptr;
  PFN_cuFuncSetAttribute_v9000 setAttribute_ = nullptr;
  PFN_cuGetErrorName_v6000 errorName_ = nullptr;
};

// A kernel, as the driver knows it on each device; `Entry` is its type, for which it is looked up once.
template <class Entry>
class LoadedKernel {
 public:
  // Null where it cannot be looked up now; the thread is on that device.
  static CUfunction on(Stream const& stream, void const* symbol) {
    auto& known = functions_[stream.device().ordinal];
    if (auto const function = known.load(std::memory_order_acquire)) return function;
    // While a stream is captured, what loads code may be refused.
    cudaFunction_t function = nullptr;
    if (stream.capturing() || cudaGetFuncBySymbol(&function, symbol) != cudaSuccess) {
      (void)cudaGetLastError();
      return nullptr;
    }
    known.store(function, std::memory_order_release);
    return function;
  }

 private:
  static inline std::atomic<CUfunction> functions_[Driver::mostDevices]{};
};

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
