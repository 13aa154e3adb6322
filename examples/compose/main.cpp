// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A new algorithm in a few lines: a schedule, a transport, a reduction, a prologue and an epilogue are named, and the
// compiler makes one kernel of them. Here the layer of a sequence-parallel model: partial sums in float are scaled and
// sent as bfloat16, reduced and scattered, each rank applies bias and activation to its part while that is in
// registers, and the parts are gathered again.
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

// ---- the algorithm
// ---------------------------------------------------------------------------------------------------

using Lines = PacketTransport<LL128>;
using SumParts = ReduceScatter<OneExchange, Lines, Sum>;
using Collect = AllGather<OneExchange, Lines>;

// y = relu(sum over ranks of scale * x + bias), n elements for each rank
struct Layer {
  MSCCLPP_DEVICE void operator()(float const* x, float scale, float bias, bf16* part, bf16* y, std::size_t n,
                                 DeviceTeam const& team) const {
    auto const grid = thisGrid();
    auto const whole = n * static_cast<std::size_t>(team.size);
    auto const scaled = [=](auto v) { return v * scale; };
    auto const activated = [=](auto sum) { return map(sum, [=](float v) { return v + bias > 0 ? v + bias : 0; }); };
    SumParts{team}(grid, WithPrologue{View{x, whole}, scaled}, View{part, n}, activated);
    gridBarrier(team, grid);  // the gather's blocks read what other blocks have reduced
    Collect{team}(grid, View{part, n}, View{y, whole});
  }
};

// ---- its use
// ---------------------------------------------------------------------------------------------------------

float element(int rank, std::size_t i) { return static_cast<float>(rank + 1) * static_cast<float>(i % 37) - 30.0f; }

void runRank(Communicator& communicator) {
  constexpr std::size_t n = 3001;
  constexpr unsigned blocks = 4;
  constexpr unsigned threads = 128;
  constexpr float scale = 0.5f;
  constexpr float bias = 2.5f;
  auto const ranks = static_cast<std::uint32_t>(communicator.size());
  std::vector<float> x(n * ranks);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = element(communicator.rank(), i);
  GpuBuffer<float> const xOnDevice(communicator.device(), x.size());
  GpuBuffer<bf16> const part(communicator.device(), n);
  GpuBuffer<bf16> const y(communicator.device(), x.size());
  copyToDevice(xOnDevice, std::span<float const>(x));

  Team const team(communicator,
                  merge(SumParts::requirement(ranks, blocks, threads), Collect::requirement(ranks, blocks, threads)));
  Stream const stream(communicator.device());
  launch(stream, {.blocks = blocks, .threads = threads}, Layer{}, xOnDevice.data(), scale, bias, part.data(), y.data(),
         n, team.deviceHandle());
  communicator.synchronize(stream);

  auto const result = copyToHost(y);
  for (std::size_t i = 0; i < result.size(); ++i) {
    float sum = 0;  // exact, all the way
    for (int rank = 0; rank < communicator.size(); ++rank) sum += element(rank, i) * scale;
    float const expected = std::max(sum + bias, 0.0f);
    auto const found = static_cast<float>(result[i]);
    if (found == expected) continue;
    throw Error(ErrorCode::internalError, "rank " + std::to_string(communicator.rank()) + ": element " +
                                              std::to_string(i) + " is " + std::to_string(found) + ", not " +
                                              std::to_string(expected));
  }
  communicator.bootstrap()->barrier();
  if (communicator.rank() == 0) std::printf("%zu elements on %u ranks: right\n", result.size(), ranks);
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
