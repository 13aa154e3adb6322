// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a kernel is started. The same on both machines.
#pragma once

#include <cstddef>

namespace mscclpp {

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 32;          // per block, 1 to 1024
  std::size_t dynamicShared = 0;  // bytes per block
  bool overlapPrevious = false;   // programmatic dependent launch: the kernel may start before the one ahead of it
                                  // in the stream has ended, and itself calls waitForPreviousKernel()
};

}  // namespace mscclpp
