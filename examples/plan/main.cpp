// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans without the machine: how long an all-reduce takes on 2 to 72 GPUs, which algorithm that is, and what a faster
// link would bring. Nothing runs on a device.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "mscclpp/collectives/cost_model.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/collectives/selection.hpp"

using namespace mscclpp;

namespace {

DeviceKind builtFor() { return KernelTable::instance().has(DeviceKind::cuda) ? DeviceKind::cuda : DeviceKind::sim; }

AlgorithmPrediction fastest(MachineModel const& model, int ranks, std::uint64_t bytes) {
  auto const all = predictions({.collective = Collective::allReduce,
                                .ranks = ranks,
                                .bytes = bytes,
                                .type = DataType::bfloat16,
                                .op = ReduceOp::sum,
                                .symmetric = true,
                                .machine = builtFor(),
                                .device = model.device},
                               model);
  return all.empty() ? AlgorithmPrediction{} : all.front();
}

}  // namespace

int main() {
  auto const& h200 = MachineModel::of("NVIDIA H200");
  auto faster = h200;
  faster.storeRate *= 2;
  faster.loadRate *= 2;
  faster.copyRate *= 2;

  bool right = true;
  std::printf("all-reduce of bfloat16: microseconds on H200, and with links twice as fast\n");
  for (int ranks : {2, 4, 8, 72}) {
    double before = 0;
    for (std::uint64_t bytes = 1024; bytes <= std::uint64_t{1} << 30; bytes *= 32) {
      auto const now = fastest(h200, ranks, bytes);
      auto const then = fastest(faster, ranks, bytes);
      std::printf("%3d ranks %11llu bytes  %9.2f  %-18s %9.2f  %s\n", ranks, static_cast<unsigned long long>(bytes),
                  now.seconds * 1e6, now.algorithm.c_str(), then.seconds * 1e6, then.algorithm.c_str());
      right = right && now.seconds > before && then.seconds <= now.seconds;
      before = now.seconds;
    }
  }
  if (!right) std::printf("wrong: more bytes or slower links must take longer\n");
  return right ? 0 : 1;
}
