// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of the MSCCL++ design document, as printed there: CUDA notation, and the older names.
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

#include "mscclpp/sim/cuda_syntax.hpp"

using namespace mscclpp_test;

namespace {

// Line for line.
// clang-format off
namespace onRank0 {
__device__ void gpuKernel(mscclpp::SmChannelDeviceHandle* smChannel) {
  smChannel[0].put(/*dstOffset=*/ 0, /*srcOffset=*/ 0, /*size=*/ 1024, /*threadId*/ threadIdx.x, /*numThreads*/ blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    smChannel[0].signal();
  }
}

__device__ void gpuKernel(mscclpp::SmChannelDeviceHandle* smChans, int flag) {
  smChans[0].putPackets(/*dstOffset=*/ 0, /*srcOffset=*/ 0, /*size=*/ 1024, /*threadId*/ threadIdx.x, /*numThreads*/ blockDim.x,
                        /*flag=*/ flag);
}
}  // namespace onRank0

namespace onRank1 {
__device__ void gpuKernel(mscclpp::SmChannelDeviceHandle* smChannel) {
  if (threadIdx.x == 0) {
    smChannel[0].wait();
  }
  __syncthreads();
  // Data is ready to use
}

__device__ void gpuKernel(mscclpp::SmChannelDeviceHandle* smChans, int flag) {
  smChans[0].getPackets(/*dstOffset=*/ 0, /*srcOffset=*/ 0, /*size=*/ 1024, /*threadId*/ threadIdx.x, /*numThreads*/ blockDim.x,
                        /*flag=*/ flag);
  // Data is ready to use
}
}  // namespace onRank1
// clang-format on

// A __global__ function of the user's, launched like any other kernel.
__global__ void channelKernel(mscclpp::SmChannelDeviceHandle* channels, int rank) {
  rank == 0 ? onRank0::gpuKernel(channels) : onRank1::gpuKernel(channels);
}

__global__ void packetKernel(mscclpp::SmChannelDeviceHandle* channels, int rank, int flag) {
  rank == 0 ? onRank0::gpuKernel(channels, flag) : onRank1::gpuKernel(channels, flag);
}

}  // namespace

TEST_CASE("the design document's kernels run as printed") {
  if (!canRun(2)) return;
  constexpr std::size_t bytes = 1024;
  forEachRank(2, [](Rank& rank) {
    auto& communicator = rank.communicator;
    auto const peer = 1 - rank.rank;
    auto const sent = randomInput<std::uint8_t>(1, 0, bytes);
    for (bool packets : {false, true}) {
      GpuBuffer<std::uint8_t> data(rank.device, bytes);
      GpuBuffer<std::uint8_t> inbox(rank.device, 2 * bytes);
      if (rank.rank == 0) copyToDevice(data, std::span<std::uint8_t const>(sent));
      // Plain data goes to the peer's data, packets to the peer's packet buffer.
      auto const mine = communicator.registerMemory(data.data(), data.bytes());
      auto const target = packets ? communicator.registerMemory(inbox.data(), inbox.bytes()) : mine;
      auto const all = communicator.exchangeMemory(target);
      MemoryChannel const channel(communicator.buildSemaphore(peer), all[static_cast<std::size_t>(peer)], mine,
                                  packets ? inbox.data() : nullptr);
      GpuBuffer<SmChannelDeviceHandle> handles(rank.device, 1);
      SmChannelDeviceHandle const handle(channel.deviceHandle());
      copyToDevice(handles, std::span<SmChannelDeviceHandle const>(&handle, 1));
      rank.meet();
      if (packets) {
        launch(rank.stream, {.blocks = 1, .threads = 64}, &packetKernel, handles.data(), rank.rank, 3);
      } else {
        launch(rank.stream, {.blocks = 1, .threads = 64}, &channelKernel, handles.data(), rank.rank);
      }
      rank.synchronize();
      CHECK(copyToHost(data) == sent);
    }
  });
}
