// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the kernels of all collectives have in common when they are entered into the table.
#pragma once

#include "mscclpp/base/config.hpp"
#include "mscclpp/collectives/kernel_table.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

// A kernel with what follows from its transport; the functions are left to fill in.
template <class Transport>
constexpr Kernel kernelOver() {
  Kernel kernel;
  kernel.overlaps = true;
  if constexpr (requires { typename Transport::Format; }) {
    kernel.packets = true;
    kernel.needsWholeLines = Transport::Format::wholeWarp;
    if (Transport::Format::wholeWarp) kernel.minThreads = 32;
  }
  kernel.multicast = Transport::requirement(1, 1, 1).multicast != 0;
  return kernel;
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
