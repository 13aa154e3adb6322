// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer of experts: each token goes to its two experts, which may be on other ranks, as FP8 with a scale for each 128
// elements; what they make of it comes home and is added up by the token's weights. One kernel sends, multiplies what
// has come tile by tile, and is followed by one that combines. No count passes the host.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/algorithms/experts/combine.hpp"
#include "mscclpp/algorithms/experts/dispatch.hpp"
#include "mscclpp/host/fused/experts.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

namespace {

constexpr std::uint32_t hidden = 256, tokens = 12, topK = 2, expertCount = 8, tileRows = 8;

// ---- the kernels ----------------------------------------------------------------------------------------------------

// Rows of expert e times e + 1: where a layer would multiply by the expert's matrix.
MSCCLPP_DEVICE void useExpert(DeviceExperts const& experts, PlacedRows<Float8E4M3> const& in, bf16* out,
                              std::uint32_t expert, std::uint32_t first, std::uint32_t rows) {
  auto const factor = static_cast<float>(static_cast<unsigned>(experts.rank()) * experts.layout.perRank + expert + 1);
  for (auto i = thisBlock().rank(); i < rows * hidden; i += thisBlock().size()) {
    auto const row = first + i / hidden, column = i % hidden;
    auto const scale = in.scales[std::size_t{row} * (hidden / 128) + column / 128];
    out[std::size_t{row} * hidden + column] = bf16(static_cast<float>(*in.rows.at(row, column)) * scale * factor);
  }
}

struct DispatchAndMultiply {
  unsigned movers;  // blocks that bring rows; the others multiply

  MSCCLPP_DEVICE void operator()(bf16 const* x, Routing<std::int32_t> const& routing,
                                 PlacedRows<Float8E4M3> const& placed, bf16* results,
                                 DeviceExperts const& experts) const {
    Dispatch<bf16, Float8E4M3> const dispatch(experts, thisGrid());
    auto const mine = blocksOfGrid(0, movers), others = blocksOfGrid(movers, thisGrid().blockCount() - movers);
    bool const moves = arch::blockIndex() < movers;
    if (moves) dispatch.send(mine, MatrixView{x, routing.tokens, hidden}, routing);
    auto const& rows = dispatch.layOut(PackedByExpert{tileRows});
    if (moves) dispatch.place(mine, rows, placed);
    unsigned turn = 0;  // each of the other blocks takes every so manyth tile
    for (std::uint32_t expert = 0; !moves && expert < experts.layout.perRank; ++expert) {
      for (std::uint32_t done = 0; done < rows.count[expert]; done += tileRows) {
        if (turn++ % others.blockCount() != others.blockRank()) continue;
        auto const first = rows.first[expert] + done, here = minimum(tileRows, rows.count[expert] - done);
        if (thisBlock().rank() == 0) dispatch.awaitPlaced(first / tileRows, here);
        syncWhole(thisBlock());
        useExpert(experts, placed, results, expert, first, here);
      }
    }
    dispatch.end();
  }
};

struct CombineTokens {
  MSCCLPP_DEVICE void operator()(MatrixView<bf16 const> const& results, Routing<std::int32_t> const& routing, bf16* y,
                                 DeviceExperts const& experts) const {
    Combine<bf16> const combine(experts, thisGrid());
    combine.send(thisGrid(), results);
    combine.fold(thisGrid(), routing, MatrixView{y, routing.tokens, hidden});
    combine.end();
  }
};

// ---- their use ------------------------------------------------------------------------------------------------------

float element(int rank, std::uint32_t token, std::uint32_t column) {
  return static_cast<float>((token * 5 + column * 7 + static_cast<unsigned>(rank) * 3) % 17) - 8;
}
// The first expert of some tokens is the same: it is hot.
std::int32_t expertOf(int rank, std::uint32_t token, std::uint32_t k) {
  auto const mixed = token * 3 + static_cast<unsigned>(rank) + k * 5;
  return static_cast<std::int32_t>(k == 0 && token % 2 == 0 ? 1 : mixed % expertCount);
}

void runRank(Communicator& communicator) {
  auto const device = communicator.device();
  int const rank = communicator.rank();
  auto const ranks = static_cast<std::uint32_t>(communicator.size());
  auto const perRank = ceilDiv(expertCount, ranks);
  auto const room = roundUp(ranks * tokens * topK + perRank * (tileRows - 1), tileRows);
  std::vector<bf16> x;
  std::vector<std::int32_t> indices;
  std::vector<float> weights;
  for (std::uint32_t token = 0; token < tokens; ++token) {
    for (std::uint32_t column = 0; column < hidden; ++column) x.emplace_back(element(rank, token, column));
    for (std::uint32_t k = 0; k < topK; ++k) {
      indices.push_back(expertOf(rank, token, k));
      weights.push_back(k == 0 ? 0.75f : 0.25f);
    }
  }
  GpuBuffer<bf16> const xOnDevice(device, x.size()), y(device, x.size()), results(device, std::size_t{room} * hidden);
  GpuBuffer<std::int32_t> const indicesOnDevice(device, indices.size());
  GpuBuffer<float> const weightsOnDevice(device, weights.size()), scales(device, std::size_t{room} * hidden / 128);
  GpuBuffer<Float8E4M3> const rows(device, std::size_t{room} * hidden);
  copyToDevice(xOnDevice, std::span<bf16 const>(x));
  copyToDevice(indicesOnDevice, std::span<std::int32_t const>(indices));
  copyToDevice(weightsOnDevice, std::span<float const>(weights));

  unsigned const movers = 2, blocks = 4;
  Experts const experts(communicator, {.experts = expertCount,
                                       .topK = topK,
                                       .tokens = tokens,
                                       .hidden = hidden,
                                       .elementBytes = sizeof(bf16),
                                       .blocks = blocks,
                                       .gates = room / tileRows});
  Stream const stream(device);
  Routing<std::int32_t> const routing{indicesOnDevice.data(), weightsOnDevice.data(), tokens, topK};
  launch(stream, {.blocks = blocks, .threads = 128}, DispatchAndMultiply{movers}, xOnDevice.data(), routing,
         PlacedRows<Float8E4M3>{.rows = {rows.data(), room, hidden}, .scales = scales.data()}, results.data(),
         experts.deviceHandle());
  launch(stream, {.blocks = blocks, .threads = 128}, CombineTokens{},
         MatrixView<bf16 const>{results.data(), room, hidden}, routing, y.data(), experts.deviceHandle());
  communicator.synchronize(stream);

  auto const sums = copyToHost(y);
  for (std::uint32_t i = 0; i < sums.size(); ++i) {
    auto const token = i / hidden, column = i % hidden;
    auto const value = element(rank, token, column);
    float expected = 0;
    for (std::uint32_t k = 0; k < topK; ++k) {
      expected += value * static_cast<float>(expertOf(rank, token, k) + 1) * (k == 0 ? 0.75f : 0.25f);
    }
    // FP8 is off by a 16th at most, bf16 by a 256th, three times.
    if (std::abs(static_cast<float>(sums[i]) - expected) > 0.08f * std::abs(expected) + 0.02f) {
      throw Error(ErrorCode::internalError, "rank " + std::to_string(rank) + ": element " + std::to_string(i) + " is " +
                                                std::to_string(static_cast<float>(sums[i])) + " in place of " +
                                                std::to_string(expected));
    }
  }
  if (rank == 0) {
    std::printf("%u tokens a rank to %u of %u experts on %u ranks and home again: right\n", tokens, topK, expertCount,
                ranks);
  }
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
