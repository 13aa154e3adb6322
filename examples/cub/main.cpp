// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A norm of rows whose columns are dealt out to two ranks, in one kernel: each rank adds up the squares of its own
// columns, by CUB's block reduction where there is one, and the ranks tell each other their sums in packets of a
// channel. So a kernel that stands on CUB needs no second kernel for what other ranks have.
//
// On the simulated machine, which has no CUB, this library's reduction stands in its place (block_sum.hpp).
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "block_sum.hpp"
#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

namespace {

constexpr unsigned threads = 128;
constexpr unsigned blocks = 3;
constexpr std::size_t rows = 40, columns = 500;  // of each rank

// `sums`: each row's of this rank, then each row's of the peer. Of a row both ranks' packets have the slot of its
// number, and a flag for each launch.
template <class BlockSum>
struct DealtOutNorm {
  MSCCLPP_DEVICE void operator()(MatrixView<float> const& x, float* sums, DeviceHandle<MemoryChannel> const& channel,
                                 std::uint32_t flag) const {
    auto const block = thisBlock();
    for (std::size_t row = thisGrid().blockRank(); row < x.rows; row += thisGrid().blockCount()) {
      float part = 0;
      for (std::size_t c = block.rank(); c < x.columns; c += block.size()) part += *x.at(row, c) * *x.at(row, c);
      part = BlockSum{}(part);
      float total = 0;
      if (block.rank() == 0) {
        sums[row] = part;
        channel.putPackets<LL8>(thisThread(), row * LL8::slotBytes, row * sizeof(float), sizeof(float), flag);
        channel.unpackPackets<LL8>(thisThread(), row * LL8::slotBytes, (x.rows + row) * sizeof(float), sizeof(float),
                                   flag);
        total = part + sums[x.rows + row];
      }
      float const norm = 1 / std::sqrt(broadcast(block, total, 0) / static_cast<float>(2 * x.columns) + 1e-6f);
      for (std::size_t c = block.rank(); c < x.columns; c += block.size()) *x.at(row, c) *= norm;
    }
  }
};

// Whole numbers from -3 to 3.
float element(int rank, std::size_t row, std::size_t column) {
  return static_cast<float>((row * 5 + column * 3 + static_cast<std::size_t>(rank)) % 7) - 3;
}

template <class BlockSum>
void normalise(Communicator& communicator, MemoryChannel const& channel, GpuBuffer<float> const& sums,
               std::uint32_t flag) {
  int const rank = communicator.rank();
  std::vector<float> values;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t c = 0; c < columns; ++c) values.push_back(element(rank, row, c));
  }
  GpuBuffer<float> const x(communicator.device(), values.size());
  copyToDevice(x, std::span<float const>(values));
  Stream const stream(communicator.device());
  launch(stream, {.blocks = blocks, .threads = threads}, DealtOutNorm<BlockSum>{}, MatrixView{x.data(), rows, columns},
         sums.data(), channel.deviceHandle(), flag);
  communicator.synchronize(stream);
  auto const found = copyToHost(x);
  for (std::size_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (int r = 0; r < 2; ++r) {
      for (std::size_t c = 0; c < columns; ++c) squares += double{element(r, row, c)} * element(r, row, c);
    }
    auto const norm = 1 / std::sqrt(squares / (2 * columns) + 1e-6);
    for (std::size_t c = 0; c < columns; ++c) {
      auto const expected = element(rank, row, c) * norm;
      auto const is = found[row * columns + c];
      if (std::abs(is - expected) <= 1e-5) continue;
      throw Error(ErrorCode::internalError, std::string(BlockSum::name) + ": rank " + std::to_string(rank) + " has " +
                                                std::to_string(is) + " in row " + std::to_string(row) + ", column " +
                                                std::to_string(c) + ", not " + std::to_string(expected));
    }
  }
  if (rank == 0) std::printf("%zu rows of two times %zu columns, sums by %s: right\n", rows, columns, BlockSum::name);
}

void runRank(Communicator& communicator) {
  auto const peer = static_cast<std::size_t>(1 - communicator.rank());
  GpuBuffer<float> const sums(communicator.device(), 2 * rows);
  GpuBuffer<std::byte> const packets(communicator.device(), rows * LL8::slotBytes);
  auto const inbox = communicator.exchangeMemory(communicator.registerMemory(packets.data(), packets.bytes()));
  MemoryChannel const channel(communicator.buildSemaphore(static_cast<int>(peer)), inbox[peer],
                              communicator.registerMemory(sums.data(), sums.bytes()), packets.data());
  normalise<OwnSum>(communicator, channel, sums, 1);
  communicator.bootstrap()->barrier();  // the peer has read the packets that are written next
#if defined(__CUDACC__)
  normalise<CubSum<threads>>(communicator, channel, sums, 2);
  communicator.bootstrap()->barrier();
#endif
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
