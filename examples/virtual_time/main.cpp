// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long would a kernel of one's own take on GPUs that are not there? Runs it on 2, 4 and 8 simulated ones by the
// clocks of an H200 and prints its time; the result is checked as well. The kernel, which scales its values before they
// are summed over all ranks and shifts the average, is of the kind that no table of collectives knows. Simulated
// machine only.
#include <cstdio>
#include <vector>

#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"
#include "mscclpp/sim/run.hpp"

using namespace mscclpp;

namespace {

using SumRow = AllReduce<OneShot, PacketTransport<LL16>, Sum>;

constexpr unsigned blocks = 2;
constexpr unsigned threads = 128;
constexpr std::size_t count = std::size_t{blocks} * threads * 4;

// x becomes the average of all ranks' x * scale, and 1 more.
struct FusedKernel {
  MSCCLPP_DEVICE void operator()(float* x, float scale, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    allowNextKernel();
    waitForPreviousKernel();
    float const share = 1.0f / static_cast<float>(team.size);
    SumRow{team}(grid, WithPrologue{View<float const>{x, count}, [scale](auto v) { return v * scale; }}, View{x, count},
                 [share](auto v) { return v * share + 1.0f; });
  }
};

bool runOn(int ranks) {
  double microseconds = 0;
  bool right = true;
  sim::run({.ranks = ranks, .timing = sim::TimingModel::h200()}, [&](sim::RankContext& rank) {
    Device const device{DeviceKind::sim, rank.device()};
    Communicator const communicator(rank.bootstrap(), device);
    Team const team(communicator, SumRow::requirement(static_cast<std::uint32_t>(ranks), blocks, threads));
    GpuBuffer<float> const x(device, count);
    copyToDevice(x, std::vector<float>(count, static_cast<float>(rank.rank() + 1)));
    Stream const stream(device);
    communicator.bootstrap()->barrier();
    constexpr int calls = 5;
    auto const begin = rank.nanoseconds();
    for (int i = 0; i < calls; ++i) {
      launch(stream, {.blocks = blocks, .threads = threads, .overlapPrevious = i > 0}, FusedKernel{}, x.data(), 2.0f,
             team.deviceHandle());
    }
    communicator.synchronize(stream);
    if (rank.rank() == 0) microseconds = (rank.nanoseconds() - begin) / calls / 1000;
    // The first call makes all ranks' values alike; from then on each doubles them and adds one.
    float expected = static_cast<float>(ranks + 1) + 1.0f;
    for (int i = 1; i < calls; ++i) expected = 2 * expected + 1.0f;
    for (float const value : copyToHost(x)) right = right && value == expected;
    communicator.bootstrap()->barrier();
  });
  std::printf("%d GPUs: %.2f us a call, %s\n", ranks, microseconds, right ? "right" : "WRONG");
  return right;
}

}  // namespace

int main() {
  bool right = true;
  for (int const ranks : {2, 4, 8}) right = runOn(ranks) && right;
  return right ? 0 : 1;
}
