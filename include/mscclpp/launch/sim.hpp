// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernel launch on the simulated machine. Twin of arch/cuda/launch.hpp.
#pragma once

#include <tuple>
#include <type_traits>
#include <typeinfo>

#include "mscclpp/base/config.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/sim/backend/launch.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

template <class Kernel, class... P>
void launchKernel(Stream const& stream, LaunchShape const& shape, Kernel const& kernel,
                  std::tuple<P...> const& arguments) {
  sim::enqueueKernel(stream.native(), shape, sim::kernelName(typeid(Kernel)), [kernel, arguments] {
    if constexpr (std::is_pointer_v<Kernel>) {
      // A function takes its parameters by value, each thread its own copy, as on a GPU.
      std::apply([&](P const&... values) { kernel(P(values)...); }, arguments);
    } else {
      std::apply(kernel, arguments);
    }
  });
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
