// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce inside the user's own kernel, the way a tensor-parallel layer needs it: each rank computes a partial
// result, all ranks sum it, and scaling and residual are applied to the sum while it is still in registers. One launch,
// no intermediate pass over memory.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

namespace {

using LayerAllReduce = AllReduce<TwoShot, PacketTransport<LL128>, Sum>;

// y = residual + scale * allReduce(x * weight)
struct Layer {
  MSCCLPP_DEVICE void operator()(float const* x, float weight, float* partial, bf16 const* residual, float* y,
                                 std::size_t n, float scale, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    // The collective's blocks read parts of `partial` that other blocks write.
    for (std::size_t i = grid.rank(); i < n; i += grid.size()) partial[i] = x[i] * weight;
    gridBarrier(team, grid);

    LayerAllReduce allReduce{team};
    allReduce(grid, View{partial, n}, View{y, n}, [=](auto sum, std::uint64_t first) {
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < sum.size; ++k) {
        if (first + k < n) sum[k] = static_cast<float>(residual[first + k]) + scale * sum[k];
      }
      return sum;
    });
  }
};

void runRank(Communicator& communicator) {
  constexpr std::size_t n = 10'007;  // any count
  constexpr unsigned blocks = 4;
  constexpr unsigned threads = 128;
  constexpr float scale = 0.25f;
  auto const device = communicator.device();
  auto const weightOf = [](int rank) { return 1.0f + static_cast<float>(rank); };

  std::vector<float> x(n);
  std::vector<bf16> residual(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(i % 64) - 32.0f;
    residual[i] = bf16(static_cast<float>(i % 7));
  }
  GpuBuffer<float> xOnDevice(device, n);
  GpuBuffer<float> partial(device, n);
  GpuBuffer<float> y(device, n);
  GpuBuffer<bf16> residualOnDevice(device, n);
  copyToDevice(xOnDevice, std::span<float const>(x));
  copyToDevice(residualOnDevice, std::span<bf16 const>(residual));

  auto const ranks = static_cast<std::uint32_t>(communicator.size());
  Team const team(communicator, LayerAllReduce::requirement(ranks, blocks, threads));
  Stream const stream(device);
  launch(stream, {.blocks = blocks, .threads = threads}, Layer{}, xOnDevice.data(), weightOf(communicator.rank()),
         partial.data(), residualOnDevice.data(), y.data(), n, scale, team.deviceHandle());
  communicator.synchronize(stream);

  float weights = 0;
  for (int rank = 0; rank < communicator.size(); ++rank) weights += weightOf(rank);
  auto const result = copyToHost(y);
  for (std::size_t i = 0; i < n; ++i) {
    float const expected = static_cast<float>(residual[i]) + scale * weights * x[i];
    if (result[i] != expected) {
      throw Error(ErrorCode::internalError, "rank " + std::to_string(communicator.rank()) + ": y[" + std::to_string(i) +
                                                "] is " + std::to_string(result[i]) + ", not " +
                                                std::to_string(expected));
    }
  }
  if (communicator.rank() == 0) std::printf("%d ranks, %zu elements: right on every rank\n", communicator.size(), n);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main() {
  try {
    runRanks(kernelDevice, std::min(4, Device::count(kernelDevice)), runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
