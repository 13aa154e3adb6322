// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernel launch on the simulated machine. Twin of cuda.hpp.
#pragma once

#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "mscclpp/base/config.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/sim/backend/launch.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

template <class Parameters, class Kernel, class... A>
void launchKernel(Stream const& stream, LaunchShape const& shape, Kernel const& kernel, A&&... given) {
  Parameters const arguments(std::forward<A>(given)...);
  sim::enqueueKernel(stream.native(), shape, sim::kernelName(typeid(Kernel)), [kernel, arguments] {
    if constexpr (std::is_pointer_v<Kernel>) {
      // A function takes its parameters by value, each thread its own copy, as on a GPU.
      std::apply([&](auto const&... values) { kernel(std::remove_cvref_t<decltype(values)>(values)...); }, arguments);
    } else {
      std::apply(kernel, arguments);
    }
  });
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
