// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer of experts by calls from the host: each token goes to its two experts, once to each node that has any, and
// what they make of it comes home and is added up by the token's weights.
//
//   MSCCLPP_SIM_DEVICES_PER_NODE=2 ./example_experts_over_nodes      simulated GPUs as nodes of two
//
// Without it, and on the GPUs of one host, there is one node, and the same calls.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "mscclpp/collectives/expert_parallel.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/hierarchy.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

constexpr std::uint32_t hidden = 64, tokens = 12, topK = 2, expertCount = 8;

// Expert e multiplies its rows by e + 1, where a layer would by a matrix. A block for each of this rank's.
struct UseExperts {
  MSCCLPP_DEVICE void operator()(float* rows, std::uint32_t const* firsts, std::uint32_t const* counts,
                                 std::uint32_t firstExpert) const {
    auto const expert = thisGrid().blockRank();
    auto* const own = rows + std::size_t{firsts[expert]} * hidden;
    auto const factor = static_cast<float>(firstExpert + expert + 1);
    for (auto i = thisBlock().rank(); i < counts[expert] * hidden; i += thisBlock().size()) own[i] *= factor;
  }
};

std::int64_t expertOf(int rank, std::uint32_t token, std::uint32_t k) {
  return (static_cast<std::uint32_t>(rank) * 5 + token * 3 + k * 4) % expertCount;
}
float weightOf(std::uint32_t k) { return k == 0 ? 0.75f : 0.25f; }

void runRank(Communicator& communicator) {
  auto const device = communicator.device();
  auto const self = communicator.rank();
  ExpertParallel const experts(communicator,
                               {.experts = expertCount, .topK = topK, .tokens = tokens, .hidden = hidden, .blocks = 2},
                               DataType::float32, DataType::float32);

  std::vector<float> x(tokens * hidden), weights;
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(self) + static_cast<float>(i % 100);
  for (std::uint32_t token = 0; token < tokens; ++token) {
    for (std::uint32_t k = 0; k < topK; ++k) {
      indices.push_back(expertOf(self, token, k));
      weights.push_back(weightOf(k));
    }
  }
  std::size_t const room = static_cast<std::size_t>(communicator.size()) * tokens * topK;
  GpuBuffer<float> const in(device, x.size()), out(device, x.size()), rows(device, room * hidden),
      weightTable(device, weights.size());
  GpuBuffer<std::int64_t> const table(device, indices.size());
  GpuBuffer<std::uint32_t> const firsts(device, experts.expertsOfRank()), counts(device, experts.expertsOfRank());
  copyToDevice(in, std::span<float const>(x));
  copyToDevice(table, std::span<std::int64_t const>(indices));
  copyToDevice(weightTable, std::span<float const>(weights));

  Stream const stream(device);
  experts.dispatch(stream, {.x = in.data(),
                            .experts = table.data(),
                            .weights = weightTable.data(),
                            .tokens = tokens,
                            .rows = rows.data(),
                            .room = room,
                            .firsts = firsts.data(),
                            .counts = counts.data()});
  launch(stream, {.blocks = experts.expertsOfRank(), .threads = 64}, UseExperts{}, rows.data(), firsts.data(),
         counts.data(), static_cast<std::uint32_t>(self) * experts.expertsOfRank());
  experts.combine(stream, {.results = rows.data(),
                           .rows = room,
                           .experts = table.data(),
                           .weights = weightTable.data(),
                           .tokens = tokens,
                           .y = out.data()});
  communicator.synchronize(stream);

  auto const y = copyToHost(out);
  for (std::size_t i = 0; i < y.size(); ++i) {
    auto const token = static_cast<std::uint32_t>(i / hidden);
    float expected = 0;
    for (std::uint32_t k = 0; k < topK; ++k) {
      expected += weightOf(k) * static_cast<float>(expertOf(self, token, k) + 1) * x[i];
    }
    if (y[i] == expected) continue;
    throw Error(ErrorCode::internalError, "rank " + std::to_string(self) + ": element " + std::to_string(i) + " is " +
                                              std::to_string(y[i]) + " instead of " + std::to_string(expected));
  }
  if (self == 0) {
    auto const nodes = nodesOf(hostsOf(communicator)).size();
    std::printf("%d ranks on %zu nodes: every token is home from its experts\n", communicator.size(), nodes);
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
