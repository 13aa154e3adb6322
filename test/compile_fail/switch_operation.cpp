// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: the switch has no such reduction
#include "mscclpp/algorithms/collective/allreduce.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, std::size_t n, DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    using Op = Min;  // of floats: never a sum in its place
#else
    using Op = Sum;
#endif
    AllReduce<SwitchPipeline<WarpRoles>, SwitchStage<4>, Op>{team}(thisGrid(), View{x, n}, View{y, n});
  }
};

#if defined(__CUDACC__)
__global__ void entry(float* x, std::size_t n, const __grid_constant__ DeviceTeam team) { Kernel{}(x, x, n, team); }
#else
void entry(float* x, std::size_t n, DeviceTeam const& team) { Kernel{}(x, x, n, team); }
#endif
