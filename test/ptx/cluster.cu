// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The barrier of a cluster: an arrival that releases and a wait that acquires, and no grid barrier in memory. Counted
// puts, and what a cluster of one block has instead.
// ptx-architectures: 90,100
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/bulk_copy.hpp"

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

// A lone block has no such stores on GPUs: it counts its own.
// ptx: putKernel : %cluster_nctaid\.x
// ptx: putKernel : fence\.acq_rel\.cta;
// ptx: putKernel : mbarrier\.complete_tx\.relaxed\.cta\.shared::cta\.b64
// ptx: putKernel : st\.async\.shared::cluster\.mbarrier::complete_tx::bytes\.b32
__global__ void putKernel(float value) {
  struct Room {
    BulkBarrier come;
    float values[8];
  };
  auto& room = arch::blockShared<Room, Room>();
  auto& there = *arch::ofClusterBlock(room, 0);
  putCounted(there.values[0], value, there.come);
}
