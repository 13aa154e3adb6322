// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A start of your own: copy this folder, put your kernel in place of MyKernel. Builds as it is, for GPUs and for the
// simulated machine.
#include <algorithm>
#include <cstdio>

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

namespace {

using Maximum = AllReduce<OneShot, PacketTransport<LL16>, Max>;

struct MyKernel {
  MSCCLPP_DEVICE void operator()(float* values, std::size_t n, DeviceTeam const& team) const {
    Maximum{team}(thisGrid(), View{values, n}, View{values, n});
  }
};

void runRank(Communicator& communicator) {
  GpuBuffer<float> values(communicator.device(), 1000);
  LaunchShape const shape{.blocks = 8, .threads = 128};
  auto const ranks = static_cast<std::uint32_t>(communicator.size());
  Team const team(communicator, Maximum::requirement(ranks, shape.blocks, shape.threads));
  Stream const stream(communicator.device());
  launch(stream, shape, MyKernel{}, values.data(), values.size(), team.deviceHandle());
  communicator.synchronize(stream);  // throws with a report if a kernel waited in vain
}

}  // namespace

int main() {
  try {
    runRanks(kernelDevice, std::min(2, Device::count(kernelDevice)), runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
