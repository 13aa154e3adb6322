// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernel launch through the CUDA runtime. Twin of arch/sim/launch.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <tuple>
#include <type_traits>

#include "mscclpp/base/config.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

// A kernel type may bound its block size, which leaves more registers to each thread: static constexpr unsigned
// maxThreads.
template <class Kernel>
constexpr unsigned maxThreadsOf() {
  if constexpr (requires { Kernel::maxThreads; }) {
    return Kernel::maxThreads;
  } else {
    return 1024;
  }
}

// The arguments of one launch as one kernel parameter. (A pack of `const` parameters would need none of this, but g++
// cannot name such a function template specialisation.)
template <class... P>
struct ArgumentList {
  template <class Kernel, class... Before>
  MSCCLPP_DEVICE void call(Kernel const& kernel, Before const&... before) const {
    kernel(before...);
  }
};
template <class First, class... Rest>
struct ArgumentList<First, Rest...> {
  First first;
  ArgumentList<Rest...> rest;

  template <class Kernel, class... Before>
  MSCCLPP_DEVICE void call(Kernel const& kernel, Before const&... before) const {
    rest.call(kernel, before..., first);
  }
};

template <class Kernel, class Arguments>
__global__ void __launch_bounds__(maxThreadsOf<Kernel>())
    kernelEntry(const __grid_constant__ Kernel kernel, const __grid_constant__ Arguments arguments) {
  arguments.call(kernel);
}

inline ArgumentList<> argumentList() { return {}; }
template <class First, class... Rest>
ArgumentList<First, Rest...> argumentList(First const& first, Rest const&... rest) {
  return {first, argumentList(rest...)};
}

inline void checkCuda(cudaError_t code, char const* operation) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::deviceError,
              std::string(operation) + ": " + cudaGetErrorName(code) + ": " + cudaGetErrorString(code));
}

template <class Kernel, class... P>
void launchKernel(Stream const& stream, LaunchShape const& shape, Kernel const& kernel,
                  std::tuple<P...> const& arguments) {
  // A stream is launched into on its own device; to ask costs less than to set.
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current != stream.device().ordinal) {
    checkCuda(cudaSetDevice(stream.device().ordinal), "launch: cudaSetDevice");
  }
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
  auto const start = [&](auto function, auto const&... parameters) {
    auto const* const address = reinterpret_cast<void const*>(function);
    if (shape.dynamicShared > 48 * 1024) {
      checkCuda(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shape.dynamicShared)),
                "launch: dynamic shared memory");
    }
    void* pointers[] = {const_cast<void*>(static_cast<void const*>(&parameters))..., nullptr};
    checkCuda(cudaLaunchKernelExC(&config, address, pointers), "launch");
  };
  std::apply(
      [&](P const&... values) {
        if constexpr (std::is_pointer_v<Kernel>) {
          start(kernel, values...);
        } else {
          start(&kernelEntry<Kernel, ArgumentList<P...>>, kernel, argumentList(values...));
        }
      },
      arguments);
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
