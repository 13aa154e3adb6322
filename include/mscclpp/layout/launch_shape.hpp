// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a kernel is started. The same on both machines.
#pragma once

#include <cstddef>

namespace mscclpp {

inline constexpr unsigned maxClusterBlocks = 8;

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 32;          // per block, 1 to 1024
  std::size_t dynamicShared = 0;  // bytes per block
  unsigned clusterBlocks = 1;     // neighbouring blocks that run together and meet by hardware (thisCluster()), 1 to 8,
                                  // a divisor of `blocks`; more than 1 needs compute capability 9.0
  bool overlapPrevious = false;   // programmatic dependent launch: the kernel may start before the one ahead of it
                                  // in the stream has ended, and itself calls waitForPreviousKernel()
};

}  // namespace mscclpp
