// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Algorithm::execute on GPUs.
#include "collectives/allreduce.hpp"
#include "collectives/every_collective.hpp"
#include "collectives/every_operation.hpp"

using namespace mscclpp_test;

TEST_CASE("every algorithm gives the right bits on GPUs") {
  if (Device::count(DeviceKind::cuda) == 0 || !KernelTable::instance().has(DeviceKind::cuda)) {
    MESSAGE("left out: there is no GPU, or this build has no kernels for it");
    return;
  }
  int const ranks = std::min(4, mostRanksOnGpus());
  checkAllReduces<float, Sum>(DeviceKind::cuda, ranks, {1, 7, 1000, 100'000, 3'000'001});
  checkAllReduces<BFloat16, Sum>(DeviceKind::cuda, ranks, {1, 501, 2'000'000});
  checkEveryCollective(DeviceKind::cuda, ranks, {1, 333, 100'000, 1'000'003});
  checkEveryCollective(DeviceKind::cuda, 1, {333, 100'000});
  checkEveryOperation(DeviceKind::cuda, 1, {333});
  checkEveryOperation(DeviceKind::cuda, ranks, {333});
}

TEST_CASE("with eight ranks as well") {
  if (mostRanksOnGpus() < 8 || !KernelTable::instance().has(DeviceKind::cuda)) {
    MESSAGE("left out: there is no GPU that ranks may share, or this build has no kernels for it");
    return;
  }
  checkAllReduces<float, Sum>(DeviceKind::cuda, 8, {1, 1000, 200'001});
  checkEveryCollective(DeviceKind::cuda, 8, {1, 333, 20'003});
}
