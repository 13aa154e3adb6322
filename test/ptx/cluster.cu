// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The barrier of a cluster: an arrival that releases and a wait that acquires, and no grid barrier in memory.
// ptx-architectures: 90,100
#include "mscclpp/device/barrier.hpp"

using namespace mscclpp;

// ptx: meetKernel : %cluster_ctaid\.x
// ptx: meetKernel : barrier\.cluster\.arrive\.release;
// ptx: meetKernel : barrier\.cluster\.wait\.acquire;
// ptx-not: meetKernel : atom
__global__ void meetKernel(unsigned* words, DeviceTeam const* team) {
  auto const cluster = thisCluster();
  words[cluster.rank()] = cluster.size();
  gridBarrier(*team, cluster);
  words[cluster.size() + cluster.rank()] = words[cluster.size() - 1 - cluster.rank()];
}
