// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernel launch on GPUs: by the driver, else by the CUDA runtime. Twin of sim.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "mscclpp/base/config.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/launch/cuda_driver.hpp"
#include "mscclpp/launch/cuda_entry.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

inline void checkCuda(cudaError_t code, char const* operation) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::deviceError,
              std::string(operation) + ": " + cudaGetErrorName(code) + ": " + cudaGetErrorString(code));
}

inline void launchByRuntime(Stream const& stream, LaunchShape const& shape, void const* function, void** parameters) {
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (shape.overlapPrevious) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.clusterBlocks != 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = shape.clusterBlocks;
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.dynamicShared;
  config.stream = static_cast<cudaStream_t>(stream.native());
  config.attrs = attributes;
  config.numAttrs = count;
  checkCuda(cudaLaunchKernelExC(&config, function, parameters), "launch");
}

// A stream is launched into on its own device; to ask costs less than to set. False where the runtime has to launch.
inline bool enterDeviceOf(Stream const& stream) {
  int const device = stream.device().ordinal;
  auto const& driver = Driver::instance();
  bool const byDriver = driver.canLaunch() && device < Driver::mostDevices;
  if (byDriver && driver.isOn(device)) return true;
  checkCuda(cudaSetDevice(device), "launch: cudaSetDevice");
  if (byDriver) driver.isNowOn(device);
  return byDriver;
}

inline void allowDynamicShared(void const* function, std::size_t bytes) {
  if (bytes <= 48 * 1024) return;
  checkCuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
            "launch: dynamic shared memory");
}

template <class Parameters, class Kernel, class... A>
void launchKernel(Stream const& stream, LaunchShape const& shape, Kernel const& kernel, A&&... arguments) {
  bool const byDriver = enterDeviceOf(stream);
  if constexpr (std::is_pointer_v<Kernel>) {
    std::apply(
        [&](auto const&... values) {
          void* pointers[] = {const_cast<void*>(static_cast<void const*>(&values))..., nullptr};
          auto const* const function = reinterpret_cast<void const*>(kernel);
          allowDynamicShared(function, shape.dynamicShared);
          launchByRuntime(stream, shape, function, pointers);
        },
        Parameters(std::forward<A>(arguments)...));
  } else {
    using Arguments = typename ArgumentsOf<Parameters>::type;
    auto const list = Arguments::of(std::forward<A>(arguments)...);
    void* pointers[] = {const_cast<void*>(static_cast<void const*>(&kernel)),
                        const_cast<void*>(static_cast<void const*>(&list))};
    auto const* const symbol = reinterpret_cast<void const*>(&kernelEntry<Kernel, Arguments>);
    allowDynamicShared(symbol, shape.dynamicShared);
    // The default stream means what the runtime was compiled to take it for.
    if (byDriver && stream.native() != nullptr) {
      auto const function = LoadedKernel<void(Kernel, Arguments)>::on(stream, symbol);
      if (function != nullptr && Driver::instance().launch(function, stream, shape, pointers) == CUDA_SUCCESS) return;
    }
    launchByRuntime(stream, shape, symbol, pointers);
  }
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
