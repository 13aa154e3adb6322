// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communication that the host's proxy carries out while the GPU computes: the all-to-all of the MSCCL++ design document
// and its overlap of a transfer with a matrix product, both kernels as printed there.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/device/device_syncer.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"

#include "mscclpp/sim/cuda_syntax.hpp"

namespace {

constexpr std::size_t elementsEach = 256;  // to each rank
constexpr unsigned side = 16;              // of the matrices
constexpr unsigned tiles = 2;              // blocks of the product

// What the document's kernels take from around them.
struct DesignDocument {
  mscclpp::DeviceSyncer& deviceSyncer;
  float const* a;
  float const* b;
  float* c;

  __device__ void matrixMul() const {
    unsigned const threads = gridDim.x * blockDim.x;
    for (unsigned i = threadIdx.x + blockIdx.x * blockDim.x; i < side * side; i += threads) {
      float sum = 0;
      for (unsigned k = 0; k < side; ++k) sum += a[i / side * side + k] * b[k * side + i % side];
      c[i] = sum;
    }
  }

  // Both as printed, but for a semicolon after matrixMul() and the template head of the alias.
  // clang-format off
__device__ void gpuKernel(mscclpp::ProxyChannelDeviceHandle* proxyChannel) {
  int tid = threadIdx.x + blockIdx.x * blockDim.x;
  // Send a trigger to the CPU
  if (tid == 0) {
    proxyChannel[0].putWithSignal(/*dstOffset*/ 0, /*srcOffset*/ 0, /*size*/ 1024);
  }
  // Continue computation
  matrixMul();
  // ...
}

template <class T>
using DeviceHandle = mscclpp::DeviceHandle<T>;
__device__ void localAlltoall(DeviceHandle<mscclpp::ProxyChannel>* proxyChans, int rank,
                              int nRanksPerNode, size_t nElements) {
  int remoteRank = ((int)blockIdx.x < rank) ? blockIdx.x : blockIdx.x + 1;
  for (int i = 1; i < nRanksPerNode; i++) {
    DeviceHandle<mscclpp::ProxyChannel> proxyChan = proxyChans[blockIdx.x];
    if (threadIdx.x == 0 && remoteRank % nRanksPerNode == (rank + i) % nRanksPerNode) {
      proxyChan.putWithSignalAndFlush(rank * nElements * sizeof(int), remoteRank * nElements * sizeof(int),
                                      nElements * sizeof(int));
    }
    // wait for the data from GPU (rank-i) % nranksPerNode to arrive
    if (threadIdx.x == 0 && remoteRank % nRanksPerNode == (rank - i + nRanksPerNode) % nRanksPerNode) {
      proxyChan.wait();
    }
    deviceSyncer.sync(nRanksPerNode - 1);
  }
}
  // clang-format on
};

__global__ void alltoall(mscclpp::ProxyChannelDeviceHandle* channels, mscclpp::DeviceSyncer* syncer, int rank,
                         int ranks) {
  DesignDocument{*syncer, nullptr, nullptr, nullptr}.localAlltoall(channels, rank, ranks, elementsEach);
}

__global__ void overlap(mscclpp::ProxyChannelDeviceHandle* channels, mscclpp::DeviceSyncer* syncer, float const* a,
                        float const* b, float* c) {
  DesignDocument{*syncer, a, b, c}.gpuKernel(channels);
  // The other rank's kilobyte has arrived once this returns.
  if (threadIdx.x + blockIdx.x * blockDim.x == 0) channels[0].wait();
}

using namespace mscclpp;

// Channels between `src` of this rank and `dst` of each peer, in the order of their ranks.
std::vector<ProxyChannelDeviceHandle> connectAll(ProxyService& service, Communicator const& communicator,
                                                 GpuBuffer<int> const& dst, GpuBuffer<int> const& src) {
  auto const all = communicator.exchangeMemory(communicator.registerMemory(dst.data(), dst.bytes()));
  auto const source = service.addMemory(communicator.registerMemory(src.data(), src.bytes()));
  std::vector<ProxyChannelDeviceHandle> handles;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) continue;
    auto const semaphore = service.buildAndAddSemaphore(communicator.connect(peer));
    auto const target = service.addMemory(all[static_cast<std::size_t>(peer)]);
    handles.emplace_back(service.portChannel(semaphore, target, source).deviceHandle());
  }
  return handles;
}

int valueOf(int rank, std::size_t index) { return rank * 100000 + static_cast<int>(index); }

void check(bool good, Communicator const& communicator, char const* what) {
  if (good) return;
  throw Error(ErrorCode::internalError, "rank " + std::to_string(communicator.rank()) + ": " + what);
}

void runRank(Communicator& communicator) {
  auto const device = communicator.device();
  int const rank = communicator.rank();
  int const ranks = communicator.size();
  std::size_t const total = elementsEach * static_cast<std::size_t>(ranks);
  GpuBuffer<int> const input(device, total), output(device, total);
  std::vector<int> values(total), expected(total);
  for (std::size_t i = 0; i < total; ++i) {
    values[i] = valueOf(rank, i);
    auto const from = static_cast<int>(i / elementsEach);
    expected[i] = from == rank ? 0 : valueOf(from, static_cast<std::size_t>(rank) * elementsEach + i % elementsEach);
  }
  copyToDevice(input, std::span<int const>(values));

  ProxyService service(communicator);
  auto const handles = connectAll(service, communicator, output, input);
  GpuBuffer<ProxyChannelDeviceHandle> const channels(device, handles.size());
  copyToDevice(channels, std::span<ProxyChannelDeviceHandle const>(handles));
  GpuBuffer<DeviceSyncer> const syncer(device, 1);
  Stream const stream(device);
  service.startProxy();
  launch(stream, {.blocks = static_cast<unsigned>(ranks) - 1, .threads = 32}, &alltoall, channels.data(), syncer.data(),
         rank, ranks);
  communicator.synchronize(stream);
  check(copyToHost(output) == expected, communicator, "the all-to-all left wrong values");
  communicator.bootstrap()->barrier();  // from here on the partner writes there again

  // The overlap, between pairs of ranks: a kilobyte moves while the product is computed.
  std::vector<float> const a(side * side, 2), b(side * side, 0.5f);
  GpuBuffer<float> const left(device, a.size()), right(device, b.size()), product(device, a.size());
  copyToDevice(left, std::span<float const>(a));
  copyToDevice(right, std::span<float const>(b));
  std::size_t const partner = static_cast<std::size_t>(rank ^ 1);
  auto const index = partner - (partner > static_cast<std::size_t>(rank) ? 1 : 0);
  launch(stream, {.blocks = tiles, .threads = 64}, &overlap, channels.data() + index, syncer.data(), left.data(),
         right.data(), product.data());
  communicator.synchronize(stream);
  auto const received = copyToHost(output);
  for (std::size_t i = 0; i < 1024 / sizeof(int); ++i) {
    check(received[i] == valueOf(rank ^ 1, i), communicator, "the overlapped transfer left wrong values");
  }
  check(copyToHost(product) == std::vector<float>(side * side, side), communicator, "the product is wrong");
  communicator.bootstrap()->barrier();
  service.stopProxy();
  if (rank == 0) std::printf("all-to-all of %d ranks and a transfer beside a matrix product: right\n", ranks);
}

}  // namespace

int main() {
  if (Device::count(kernelDevice) < 2) {
    std::printf("left out: needs two devices\n");
    return 0;
  }
  try {
    // Pairs exchange at the end.
    runRanks(kernelDevice, Device::count(kernelDevice) >= 4 ? 4 : 2, runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
