// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where there are no clusters, a block is one by itself.
// ptx-architectures: 80
#include "mscclpp/device/group.hpp"

using namespace mscclpp;

// ptx: meetKernel : bar(rier)?\.sync
// ptx-not: meetKernel : cluster
__global__ void meetKernel(unsigned* words) {
  auto const cluster = thisCluster();
  words[cluster.rank()] = cluster.blockCount();
  cluster.sync();
  words[cluster.size() + cluster.rank()] = words[cluster.size() - 1 - cluster.rank()];
}
