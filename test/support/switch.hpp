// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether a test can use the switch between this machine's devices.
#pragma once

#include "mscclpp/host/multicast.hpp"
#include "support/world.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

#if defined(__CUDACC__)
inline constexpr DeviceKind testedMachine = DeviceKind::cuda;
#else
inline constexpr DeviceKind testedMachine = DeviceKind::sim;
#endif

// False, with a message, where there is none, or there are fewer devices.
inline bool hasSwitch(int ranks) {
  if (!canRun(ranks)) return false;
  auto const why = whyNoMulticast(Device{testedMachine, 0});
  if (!why.empty()) MESSAGE("left out: ", why);
  return why.empty();
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
