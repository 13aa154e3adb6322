// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks: rank 0 puts 1 KiB into rank 1's memory and signals; rank 1 waits and finds it there. Compiled by nvcc it
// runs on two GPUs, or both ranks on the only one; by any other C++20 compiler on two simulated ones.
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

struct Hello {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, int rank) const {
    auto const block = thisBlock();
    if (rank == 0) {
      channel.put(block, /*dstOffset=*/0, /*srcOffset=*/0, /*bytes=*/1024);
      block.sync();
      if (block.rank() == 0) channel.signal();
    } else {
      if (block.rank() == 0) channel.wait();
      block.sync();
      // The data is ready to use.
    }
  }
};

void runRank(Communicator& communicator) {
  constexpr std::size_t count = 1024 / sizeof(std::uint32_t);
  int const rank = communicator.rank();
  int const peer = 1 - rank;

  GpuBuffer<std::uint32_t> buffer(communicator.device(), count);
  std::vector<std::uint32_t> greeting(count);
  std::iota(greeting.begin(), greeting.end(), 42);
  if (rank == 0) copyToDevice(buffer, std::span<std::uint32_t const>(greeting));

  auto const mine = communicator.registerMemory(buffer.data(), buffer.bytes());
  auto const all = communicator.exchangeMemory(mine);
  MemoryChannel const channel(communicator.buildSemaphore(peer), all[static_cast<std::size_t>(peer)], mine);

  Stream const stream(communicator.device());
  launch(stream, {.blocks = 1, .threads = 128}, Hello{}, channel.deviceHandle(), rank);
  communicator.synchronize(stream);

  if (rank == 1) {
    if (copyToHost(buffer) != greeting) throw Error(ErrorCode::internalError, "rank 1: the data did not arrive");
    std::printf("rank 1 on %s received 1 KiB from rank 0\n", communicator.device().properties().name.c_str());
  }
  communicator.bootstrap()->barrier();
}

}  // namespace

int main() {
  try {
    runRanks(devicesInTurn(kernelDevice, 2), runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
