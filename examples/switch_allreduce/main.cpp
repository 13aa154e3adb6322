// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce in place through the switch between the devices (NVLS): rank r has the switch add up chunk r of
// everybody's buffer, and write the sum into everybody's buffer. On simulated GPUs, or, compiled by nvcc, on those of a
// machine whose switch can do it; elsewhere it says why it cannot.
#include <cstdio>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/multimem.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/switch_channel.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

constexpr int ranks = 4;
constexpr std::size_t count = 4096;  // floats on each rank

struct SwitchAllReduce {
  // One block; `count` is a whole number of f32x4 for each rank.
  MSCCLPP_DEVICE void operator()(DeviceHandle<SwitchChannel> const& channel) const {
    auto const block = thisBlock();
    // Everybody's input is there, and nobody reads its buffer any more.
    if (block.rank() == 0) {
      channel.signal();
      channel.wait();
    }
    block.sync();

    constexpr std::uint64_t chunk = count / ranks / 4;
    auto const first = static_cast<std::uint64_t>(channel.rank) * chunk;
    for (std::uint64_t i = first + block.rank(); i < first + chunk; i += block.size()) {
      auto const sum = channel.reduce<f32x4>(i);
      channel.broadcast(i, sum);
    }

    // All chunks have come.
    block.sync();
    if (block.rank() == 0) {
      channel.signal();
      channel.wait();
    }
  }
};

void runRank(Communicator& communicator) {
  int const rank = communicator.rank();
  // Memory that can be bound to the switch.
  GpuBuffer<float> const buffer(communicator.device(), count, MemoryKind::shareable);
  std::vector<float> const input(count, static_cast<float>(rank + 1));
  copyToDevice(buffer, std::span<float const>(input));
  SwitchChannel const channel(communicator, buffer.data(), buffer.bytes());

  Stream const stream(communicator.device());
  launch(stream, {.blocks = 1, .threads = 128}, SwitchAllReduce{}, DeviceHandle<SwitchChannel>(channel.deviceHandle()));
  communicator.synchronize(stream);

  for (float value : copyToHost(buffer)) {
    if (value != 1 + 2 + 3 + 4) throw Error(ErrorCode::internalError, "a sum is wrong");
  }
  if (rank == 0) std::printf("%d ranks have summed %zu floats through the switch\n", ranks, count);
  communicator.bootstrap()->barrier();
}

}  // namespace

int main() {
  try {
    if (Device::count(kernelDevice) < ranks) {
      std::printf("left out: it takes %d devices\n", ranks);
      return 0;
    }
    if (auto const why = whyNoMulticast(Device{kernelDevice, 0}); !why.empty()) {
      std::printf("left out: %s\n", why.c_str());
      return 0;
    }
    runRanks(kernelDevice, ranks, runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
