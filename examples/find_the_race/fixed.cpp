// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks swap rows and add them up, as docs/find_the_race.md shows.
#include <stdexcept>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/sim/check_program.hpp"

using namespace mscclpp;

namespace {

constexpr unsigned count = 64;
constexpr unsigned rowBytes = count * sizeof(float);

// `row` is this rank's; the peer puts its own behind it.
struct Exchange {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, float const* row, float* sum) const {
    auto const block = thisBlock();
    channel.put(block, /*dstOffset=*/rowBytes, /*srcOffset=*/0, rowBytes);
    block.sync();
    if (block.rank() == 0) {
      channel.signal();
      channel.wait();
    }
    block.sync();
    sum[block.rank()] = row[block.rank()] + row[count + block.rank()];
  }
};

void exchange(sim::RankContext& rank) {
  Communicator const communicator(rank.bootstrap(), Device{DeviceKind::sim, rank.device()});
  int const peer = 1 - rank.rank();
  GpuBuffer<float> const rows(communicator.device(), 2 * count);
  GpuBuffer<float> const sum(communicator.device(), count);
  copyToDevice(rows, std::vector<float>(count, 1.0f + static_cast<float>(rank.rank())));

  auto const mine = communicator.registerMemory(rows.data(), rows.bytes());
  auto const all = communicator.exchangeMemory(mine);
  MemoryChannel const channel(communicator.buildSemaphore(peer), all[static_cast<std::size_t>(peer)], mine);

  Stream const stream(communicator.device());
  launch(stream, {.blocks = 1, .threads = count}, Exchange{}, channel.deviceHandle(), rows.data(), sum.data());
  communicator.synchronize(stream);
  if (copyToHost(sum) != std::vector<float>(count, 3.0f)) throw std::runtime_error("a wrong sum");
  communicator.bootstrap()->barrier();
}

sim::CheckProgram const check{"exchange", exchange};

}  // namespace
