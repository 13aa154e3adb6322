// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiled by nvcc.
#include "machine/bare_launch.hpp"

#include <cuda_runtime.h>

#include <string>

#include "mscclpp/host/error.hpp"

namespace mscclpp::bench {
namespace {

struct Parameters {
  unsigned char bytes[512];
};

__global__ void __launch_bounds__(1024) emptyKernel(const __grid_constant__ Parameters) {}

void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::deviceError, std::string("benchmark: launch an empty kernel: ") + cudaGetErrorString(code));
}

}  // namespace

std::function<void()> makeBareLaunch(Stream const& stream, LaunchShape const& shape) {
  if (shape.dynamicShared > 48 * 1024) {
    check(cudaFuncSetAttribute(emptyKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.dynamicShared)));
  }
  return [native = static_cast<cudaStream_t>(stream.native()), shape] {
    cudaLaunchAttribute attributes[2]{};
    unsigned count = 0;
    if (shape.overlapPrevious) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.clusterBlocks != 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {shape.clusterBlocks, 1, 1};
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(shape.blocks);
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.dynamicShared;
    config.stream = native;
    config.attrs = attributes;
    config.numAttrs = count;
    check(cudaLaunchKernelEx(&config, emptyKernel, Parameters{}));
  };
}

}  // namespace mscclpp::bench
