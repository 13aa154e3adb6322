// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks swap data in LL16 packets, twenty times in one kernel: no signal, no barrier between them, because each
// packet carries its flag. Two halves of the packet buffer take turns, and each round needs the peer's packets of that
// round, so nothing is overwritten that is still to be read.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

constexpr std::uint32_t rounds = 20;
constexpr std::size_t count = 300;
constexpr std::size_t bytes = count * sizeof(std::uint32_t);
constexpr std::size_t halfBytes = LL16::slotsFor(bytes) * LL16::slotBytes;

// Every round: send the values, receive the peer's, keep their sum.
struct SwapAndAdd {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, std::uint32_t* values) const {
    auto const block = thisBlock();
    std::uint32_t* const received = values + count;
    for (std::uint32_t flag = 1; flag <= rounds; ++flag) {
      auto const half = flag % 2 * halfBytes;
      channel.putPackets<LL16>(block, /*targetOffset=*/half, /*originOffset=*/0, bytes, flag);
      channel.unpackPackets<LL16>(block, /*packetOffset=*/half, /*targetOffset=*/bytes, bytes, flag);
      block.sync();
      for (unsigned i = block.rank(); i < count; i += block.size()) values[i] += received[i];
      block.sync();
    }
  }
};

void runRank(Communicator& communicator) {
  int const peer = 1 - communicator.rank();
  GpuBuffer<std::uint32_t> values(communicator.device(), 2 * count);
  std::vector<std::uint32_t> start(count);
  for (std::size_t i = 0; i < count; ++i)
    start[i] = static_cast<std::uint32_t>(i + 1) + (communicator.rank() == 0 ? 0 : 7);
  copyToDevice(values, std::span<std::uint32_t const>(start));

  GpuBuffer<std::byte> packets(communicator.device(), 2 * halfBytes);
  auto const inbox = communicator.exchangeMemory(communicator.registerMemory(packets.data(), packets.bytes()));
  MemoryChannel const channel(communicator.buildSemaphore(peer), inbox[static_cast<std::size_t>(peer)],
                              communicator.registerMemory(values.data(), values.bytes()), packets.data());

  Stream const stream(communicator.device());
  launch(stream, {.blocks = 1, .threads = 128}, SwapAndAdd{}, channel.deviceHandle(), values.data());
  communicator.synchronize(stream);

  // The first round gives both ranks the sum; each further round doubles it.
  auto const result = copyToHost(values);
  for (std::size_t i = 0; i < count; ++i) {
    auto const expected = static_cast<std::uint32_t>(2 * (i + 1) + 7) << (rounds - 1);
    if (result[i] != expected) {
      throw Error(ErrorCode::internalError, "rank " + std::to_string(communicator.rank()) + ": element " +
                                                std::to_string(i) + " is " + std::to_string(result[i]) + ", not " +
                                                std::to_string(expected));
    }
  }
  if (communicator.rank() == 0) std::printf("%u rounds of packets, both ranks agree\n", rounds);
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
