// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Never slower than what you have: an all-reduce with its norm in one kernel beside an all-reduce and a kernel of its
// own for the norm. Which is faster depends on how many tokens there are, so each number of tokens is measured once, on
// all ranks together, and from then on takes what was faster on the slowest rank. With a file as its argument the
// program keeps there what it has measured, and measures nothing when it is run again.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/host/fused/arms.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

namespace {

constexpr std::size_t hidden = 512;

MSCCLPP_DEVICE float normOf(float squares) { return 1 / std::sqrt(squares / static_cast<float>(hidden) + 1e-6f); }

// ---- two ways to do it ----------------------------------------------------------------------------------------------

using Rows = AllReduceRows<RowOneShot, PacketTransport<LL128, 2>, Sum>;
using Values = AllReduce<TwoShot, PacketTransport<LL128>, Sum>;

struct Fused {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, std::size_t tokens, DeviceTeam const& team) const {
    auto const norm = [&](auto& row) {
      float const factor = normOf(row.sum([](float v) { return v * v; }));
      row.map([=](float v) { return v * factor; });
      row.store(MatrixView{y, tokens, hidden});
    };
    Rows{team}(thisGrid(), MatrixView{x, tokens, hidden}, norm);
  }
};

struct Reduce {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, std::size_t tokens, DeviceTeam const& team) const {
    Values{team}(thisGrid(), View{x, tokens * hidden}, View{y, tokens * hidden});
  }
};

struct Norm {  // a thread for each row, to be short
  MSCCLPP_DEVICE void operator()(float* y, std::size_t tokens) const {
    auto const grid = thisGrid();
    for (auto row = static_cast<std::size_t>(grid.rank()); row < tokens; row += static_cast<std::size_t>(grid.size())) {
      float squares = 0;
      for (std::size_t c = 0; c < hidden; ++c) squares += y[row * hidden + c] * y[row * hidden + c];
      for (std::size_t c = 0; c < hidden; ++c) y[row * hidden + c] *= normOf(squares);
    }
  }
};

// ---- one operation --------------------------------------------------------------------------------------------------

float element(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 11) - 5;
}

void check(Communicator const& communicator, std::vector<float> const& y) {
  for (std::size_t row = 0; row < y.size() / hidden; ++row) {
    std::vector<float> sums(hidden);
    float squares = 0;
    for (std::size_t c = 0; c < hidden; ++c) {
      for (int rank = 0; rank < communicator.size(); ++rank) sums[c] += element(rank, row * hidden + c);
      squares += sums[c] * sums[c];
    }
    float const factor = 1 / std::sqrt(squares / static_cast<float>(hidden) + 1e-6f);
    for (std::size_t c = 0; c < hidden; ++c) {
      if (std::abs(y[row * hidden + c] - sums[c] * factor) > 1e-5f) {
        throw Error(ErrorCode::internalError, "rank " + std::to_string(communicator.rank()) + ": row " +
                                                  std::to_string(row) + ", column " + std::to_string(c) + " is wrong");
      }
    }
  }
}

void runRank(Communicator& communicator, std::string const& profile) {
  constexpr std::size_t mostTokens = 64;
  auto const device = communicator.device();
  auto const ranks = static_cast<std::uint32_t>(communicator.size());
  auto const rowShape = Rows::shape<float>(mostTokens, hidden, /*maxBlocks=*/8);
  LaunchShape const shape{.blocks = 4, .threads = 128};
  Team const rowTeam(communicator, Rows::requirement(ranks, rowShape.blocks, rowShape.threads));
  Team const team(communicator, Values::requirement(ranks, shape.blocks, shape.threads));

  Arms<float const*, float*> arms(
      communicator, "all_reduce_norm",
      {{"unfused",  // first, as what is there today: something else has to be faster by more than noise
        [&](ArmKey const& key, Stream const& stream, float const* x, float* y) {
          auto const tokens = static_cast<std::size_t>(key.numbers()[0]);
          launch(stream, shape, Reduce{}, x, y, tokens, team.deviceHandle());
          launch(stream, shape, Norm{}, y, tokens);
        }},
       {"fused",
        [&](ArmKey const& key, Stream const& stream, float const* x, float* y) {
          auto const tokens = static_cast<std::size_t>(key.numbers()[0]);
          if (tokens > 32) return false;  // refused: every rank would make each of so many rows
          launch(stream, rowShape, Fused{}, x, y, tokens, rowTeam.deviceHandle());
          return true;
        }}},
      {.samples = 3, .operations = 1, .profile = profile});

  GpuBuffer<float> const x(device, mostTokens * hidden), y(device, mostTokens * hidden);
  std::vector<float> mine(x.size());
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = element(communicator.rank(), i);
  copyToDevice(x, std::span<float const>(mine));
  Stream const stream(device);
  for (std::size_t const tokens : {std::size_t{1}, std::size_t{8}, mostTokens}) {
    for (int call = 0; call < 2; ++call) {  // the first one measures
      y.fill(0x5a);
      arms({tokens, hidden}, stream, x.data(), y.data());
      communicator.synchronize(stream);
      auto result = copyToHost(y);
      result.resize(tokens * hidden);
      check(communicator, result);
    }
  }
  if (communicator.rank() == 0) std::printf("%s", arms.describe().c_str());
  communicator.bootstrap()->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string const profile = argc > 1 ? argv[1] : "";
    runRanks(kernelDevice, std::min(4, Device::count(kernelDevice)),
             [&](Communicator& communicator) { runRank(communicator, profile); });
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
