// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programmatic dependent launch: nothing is read before the previous kernel has ended.
// ptx-architectures: 90,100
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

// ptx: allReduceKernel : griddepcontrol\.wait
// ptx: allReduceKernel : griddepcontrol\.launch_dependents
// ptx: allReduceKernel : ld\.relaxed\.gpu\.global\.b64
__global__ void allReduceKernel(float const* in, float* out, std::size_t count, const __grid_constant__ DeviceTeam team) {
  AllReduceKernel<AllReduce<OneShot, PacketTransport<LL16>, Sum, 4>, float>{}(in, out, count, team);
}

// The team's table of pointers stays in constant memory.
// ptx-not: allReduceKernel : \.local|ld\.global[^;]*;[^;]*griddepcontrol\.wait
