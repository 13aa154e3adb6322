// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts a kernel: the same call on a GPU and on the simulated machine.
//
//   launch(stream, {.blocks = 4, .threads = 128}, MyKernel{}, arguments...);    a type with a device operator() const
//   launch(stream, {.blocks = 4, .threads = 128}, myKernel, arguments...);      a __global__ function
//
// Arguments are converted to the kernel's parameter types and copied; a parameter taken by const reference is read
// where the copy lies, so handles with large tables should be taken so. Returns at once; the kernel runs in stream
// order. Throws Error(invalidUsage) for an impossible shape and Error(deviceError) when the machine refuses.
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "mscclpp/base/config.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/host/trace.hpp"
#include "mscclpp/launch/argument_list.hpp"
#include "mscclpp/layout/launch_shape.hpp"

#if defined(__CUDACC__)
#include "mscclpp/launch/cuda.hpp"
#else
#include "mscclpp/launch/sim.hpp"
#endif

namespace mscclpp {

namespace detail {

inline void checkShape(LaunchShape const& shape) {
  if (shape.blocks == 0 || shape.threads == 0 || shape.threads > 1024) {
    throw Error(ErrorCode::invalidUsage, "launch: " + std::to_string(shape.blocks) + " blocks of " +
                                             std::to_string(shape.threads) +
                                             " threads; a grid has at least 1 block, a block 1 to 1024 threads");
  }
  auto const cluster = shape.clusterBlocks;
  if (cluster == 0 || cluster > maxClusterBlocks || shape.blocks % cluster != 0) {
    throw Error(ErrorCode::invalidUsage, "launch: " + std::to_string(shape.blocks) + " blocks in clusters of " +
                                             std::to_string(cluster) + "; a cluster has 1 to " +
                                             std::to_string(maxClusterBlocks) + " blocks, and a grid whole clusters");
  }
}

}  // namespace detail

inline namespace MSCCLPP_BACKEND {

// The kind of machine that this translation unit's kernels run on.
#if defined(__CUDACC__)
inline constexpr DeviceKind kernelDevice = DeviceKind::cuda;
#else
inline constexpr DeviceKind kernelDevice = DeviceKind::sim;
#endif

template <class Kernel, class... Arguments>
void launch(Stream const& stream, LaunchShape const& shape, Kernel&& kernel, Arguments&&... arguments) {
  using K = std::decay_t<Kernel>;
  using Parameters = typename mscclpp::detail::CallSignature<K>::Parameters;
  static_assert(sizeof...(Arguments) == std::tuple_size_v<Parameters>,
                "launch: give one argument for each parameter of the kernel");
  mscclpp::detail::checkShape(shape);
  if (stream.device().kind != kernelDevice) {
    throw Error(
        ErrorCode::invalidUsage,
        "launch: this kernel was compiled for one kind of machine and the stream belongs to another; compile it "
        "with nvcc for GPUs, with another compiler for the simulated machine");
  }
  if (Trace::on()) Trace::kernel(stream.native(), stream.device().ordinal, typeid(K).name());
  arch::launchKernel<Parameters>(stream, shape, K(std::forward<Kernel>(kernel)), std::forward<Arguments>(arguments)...);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
