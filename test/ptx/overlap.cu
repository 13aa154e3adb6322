// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programmatic dependent launch: the next kernel may start at once, and nothing is read or written before the previous
// kernel has ended, on any path through the kernel.
// ptx-architectures: 90,100
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

// ptx: allReduceKernel : griddepcontrol\.launch_dependents
// ptx: allReduceKernel : griddepcontrol\.wait
// ptx: allReduceKernel : ld\.relaxed\.sys\.global\.v4\.b32
// ptx: allReduceKernel : ld\.global
// ptx: allReduceKernel : griddepcontrol\.wait
// ptx-not: allReduceKernel : ^((?!griddepcontrol\.wait).)*(ld|st)\.(relaxed|global|acquire)
// The team's table of pointers stays in constant memory.
// ptx-not: allReduceKernel : \.local
__global__ void allReduceKernel(float const* in, float* out, std::size_t count,
                                const __grid_constant__ DeviceTeam team) {
  AllReduceKernel<AllReduce<OneShot, PacketTransport<LL16>, Sum, 4>, float>{}(in, out, count, team);
}
