// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/cuda_syntax.hpp"

#include <doctest/doctest.h>

#include "sim/sim_fixture.hpp"

using namespace simtest;

namespace {

__device__ __forceinline__ int warpSum(int value) {
  for (int offset = warpSize / 2; offset > 0; offset /= 2)
    value += __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(offset));
  return value;
}

__global__ void __launch_bounds__(256) sumKernel(int const* in, int* out, int n) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  int const sum = warpSum(i < n ? in[i] : 0);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
  __syncthreads();
  __threadfence();
  if (i == 0) out[1] = static_cast<int>(gridDim.x * 1000 + blockDim.y + threadIdx.y);
}

}  // namespace

TEST_CASE("a kernel in CUDA notation") {
  DeviceArray<int> in(0, 1000), out(0, 2);
  for (std::size_t i = 0; i < 1000; ++i) in[i] = static_cast<int>(i);
  Stream stream;
  stream.launch({.blocks = 4, .threads = 256}, [a = in.data(), b = out.data()] { sumKernel(a, b, 1000); });
  stream.synchronize();
  CHECK(out[0] == 499500);
  CHECK(out[1] == 4001);
}

TEST_CASE("votes in CUDA notation") {
  unsigned wrong = 0;
  runKernel({}, {}, [&] {
    int const lane = static_cast<int>(threadIdx.x);
    if (__ballot_sync(0xffffffffu, lane < 4) != 0xfu) ++wrong;
    if (!__any_sync(0xffffffffu, lane == 30) || __all_sync(0xffffffffu, lane)) ++wrong;
    if (__shfl_sync(0xffffffffu, lane * 2, 10) != 20) ++wrong;
    if (__shfl_xor_sync(0xffffffffu, lane, 2) != (lane ^ 2)) ++wrong;
    __syncwarp();
  });
  CHECK(wrong == 0);
}
