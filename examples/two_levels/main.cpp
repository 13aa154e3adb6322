// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An average over all ranks of several nodes: mapped memory inside a node, port channels between the nodes.
//
//   MSCCLPP_SIM_DEVICES_PER_NODE=2 ./example_two_levels      simulated GPUs as nodes of two
//
// Without it, and on the GPUs of one host, there is one node.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/algorithms/collective/hierarchical.hpp"
#include "mscclpp/host/hierarchy.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

constexpr std::size_t count = 1000;

struct AverageOfAll {
  MSCCLPP_DEVICE void operator()(DeviceHierarchy const& team) const {
    hierarchicalAllReduce<float, Avg>(team, thisGrid(), count);
  }
};

void runRank(Communicator& communicator) {
  HierarchicalTeam const team(communicator, {.blocks = 2, .bytes = count * sizeof(float)});
  auto* const data = reinterpret_cast<float*>(team.data());
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(communicator.rank()) + static_cast<float>(i);
  copyToDevice(communicator.device(), data, std::span<float const>(values));

  Stream const stream(communicator.device());
  launch(stream, {.blocks = 2, .threads = 128}, AverageOfAll{}, team.deviceHandle());
  communicator.synchronize(stream);

  copyToHost(communicator.device(), std::span<float>(values), data);
  auto const middle = static_cast<float>(communicator.size() - 1) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] == middle + static_cast<float>(i)) continue;
    throw Error(ErrorCode::internalError, "rank " + std::to_string(communicator.rank()) + ": element " +
                                              std::to_string(i) + " is " + std::to_string(values[i]));
  }
  if (communicator.rank() == 0) std::printf("%d nodes of %d ranks agree\n", team.nodes(), team.rails());
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
