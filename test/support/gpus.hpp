// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GPUs for the ranks of a test: one each where there are enough, else several ranks to a GPU.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/ranks.hpp"

namespace mscclpp_test {

// How many ranks this machine's GPUs can have: up to 8 share them, since all their kernels are there at once and CUDA
// gives that many streams a queue each. MSCCLPP_TEST_SHARE_GPUS=OFF: one to a GPU, as under compute-sanitizer, which at
// times runs one kernel at a time.
inline int mostRanksOnGpus() {
  int const gpus = mscclpp::Device::count(mscclpp::DeviceKind::cuda);
  char const* const share = std::getenv("MSCCLPP_TEST_SHARE_GPUS");
  bool const alone = share != nullptr && std::string_view(share) == "OFF";
  return gpus == 0 || alone ? gpus : std::max(gpus, 8);
}

// False, with a message, where this machine has too few GPUs.
inline bool hasGpus(int ranks) {
  int const most = mostRanksOnGpus();
  if (ranks <= most) return true;
  MESSAGE("left out: ", ranks, " ranks; the GPUs here have up to ", most);
  return false;
}

inline void runOnGpus(int ranks, std::function<void(mscclpp::Communicator&)> const& rankMain) {
  mscclpp::runRanks(mscclpp::devicesInTurn(mscclpp::DeviceKind::cuda, ranks), rankMain);
}

// Ahead of launches that wait for other ranks': all of them have what they need, since ranks may share a GPU
// (mscclpp/host/ranks.hpp). Simulated ranks start when they like.
inline void meetOnGpus(mscclpp::Communicator const& communicator) {
  if (communicator.device().kind == mscclpp::DeviceKind::cuda) communicator.bootstrap()->barrier();
}

}  // namespace mscclpp_test
