// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a kernel type that was compiled at run time is started on the simulated machine. Twin of cuda_entry.hpp.
#pragma once

#include <type_traits>

#include "mscclpp/base/config.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

// `arguments` has the bytes of `Arguments`.
template <class Kernel, class Arguments>
void lateEntry(Stream const& stream, LaunchShape const& shape, void const* arguments) {
  static_cast<Arguments const*>(arguments)->call(
      [&](auto const&... each) { launch(stream, shape, Kernel{}, each...); });
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
