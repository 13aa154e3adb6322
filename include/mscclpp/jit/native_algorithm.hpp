// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A user's algorithm whose kernel is compiled while the program runs:
//
//   // mine.cu
//   template <class T, class Op>   // Op: where the collective reduces
//   struct Mine {
//     MSCCLPP_DEVICE void operator()(View<T const> in, View<T> out, DeviceTeam const& team, int root) const { ... }
//   };
//
//   algorithms.add(jit::nativeAlgorithm({.name = "mine", .collective = Collective::allReduce,
//                                        .source = jit::Source::fromFile("mine.cu"), .type = "Mine",
//                                        .shape = {.blocks = 4, .threads = 256}, .workspace = ...}));
//
// The first call of an element type and operation waits for its kernel, which then is kept (kernel.hpp). A call's
// blocks and threads go before those given here. Each size, to the next power of two, has a team of its own. Needs
// mscclpp::jit and mscclpp::collectives.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/collectives/native_algorithm.hpp"
#include "mscclpp/device/view.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/jit/kernel.hpp"
#include "mscclpp/layout/workspace.hpp"

namespace mscclpp::jit {

// What nativeAlgorithm() makes an algorithm of.
struct DeviceAlgorithm {
  std::string name;
  Collective collective;
  Source source;
  std::string type;  // a template, see above
  LaunchShape shape;
  // What a team of so many ranks needs for calls of up to so many bytes of input; the same on all ranks. Left empty:
  // the kernel uses no workspace.
  std::function<layout::WorkspaceRequirement(int ranks, LaunchShape const& shape, std::uint64_t inBytes)> workspace{};
  Options options{};
};

namespace detail {

struct DeviceRun {
  Kernel<void(View<std::byte const>, View<std::byte>, layout::TeamHandle, int)> kernel;
  LaunchShape shape;
  Team team;
};

}  // namespace detail

// Errors of the source are thrown by the first call, as AnyKernel throws them.
inline std::shared_ptr<Algorithm const> nativeAlgorithm(DeviceAlgorithm algorithm) {
  auto const of = std::make_shared<DeviceAlgorithm const>(std::move(algorithm));
  auto const shapeOf = [of](CollectiveCall const& call) {
    auto shape = of->shape;
    if (call.blocks != 0) shape.blocks = static_cast<unsigned>(call.blocks);
    if (call.threads != 0) shape.threads = static_cast<unsigned>(call.threads);
    return shape;
  };
  auto const largestOf = [](CollectiveCall const& call) {
    return std::bit_ceil(std::max<std::uint64_t>(call.inBytes, 16));
  };
  NativeFunctions functions;
  functions.contextKey = [=](Communicator const&, CollectiveCall const& call) {
    auto const shape = shapeOf(call);
    auto const kind = static_cast<std::uint64_t>(call.type) << 8 | static_cast<std::uint64_t>(call.op);
    return ContextKey{.inBytes = largestOf(call), .outBytes = shape.blocks, .tag = kind << 32 | shape.threads};
  };
  functions.makeContext = [=](Communicator const& communicator, CollectiveCall const& call) -> std::shared_ptr<void> {
    auto const type =
        reduces(of->collective) ? instanceName(of->type, call.type, call.op) : instanceName(of->type, call.type);
    auto const shape = shapeOf(call);
    auto const workspace =
        of->workspace ? of->workspace(communicator.size(), shape, largestOf(call)) : layout::WorkspaceRequirement{};
    return std::make_shared<detail::DeviceRun>(detail::DeviceRun{
        {communicator.device(), of->source, type, of->options}, shape, Team(communicator, workspace)});
  };
  functions.run = [](std::shared_ptr<void> const& context, CollectiveCall const& call, Stream const& stream) {
    auto const& run = *static_cast<detail::DeviceRun const*>(context.get());
    auto const elements = bytesOf(call.type);
    run.kernel.launch(stream, run.shape, {static_cast<std::byte const*>(call.in), call.inBytes / elements},
                      {static_cast<std::byte*>(call.out), call.outBytes / elements}, run.team.deviceHandle(),
                      call.root);
  };
  return std::make_shared<NativeAlgorithm>(of->name, of->collective, std::move(functions));
}

}  // namespace mscclpp::jit
