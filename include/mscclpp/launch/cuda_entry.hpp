// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The __global__ functions that a kernel type is entered by. Device code alone, so that NVRTC takes it. Twin of
// sim_entry.hpp.
#pragma once

#include "mscclpp/base/config.hpp"
#include "mscclpp/launch/argument_list.hpp"

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

// One block for each multiprocessor is enough: for more the compiler would spill registers.
template <class Kernel, class Arguments>
__global__ void __launch_bounds__(maxThreadsOf<Kernel>(), 1)
    kernelEntry(const __grid_constant__ Kernel kernel, const __grid_constant__ Arguments arguments) {
  arguments.call(kernel);
}

// Of a type that the host does not know, compiled at run time.
template <class Kernel, class Arguments>
__global__ void __launch_bounds__(maxThreadsOf<Kernel>(), 1) lateEntry(const __grid_constant__ Arguments arguments) {
  Kernel const kernel{};
  arguments.call(kernel);
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
