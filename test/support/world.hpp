// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one test body on every rank, on the machine the test is compiled for: fibers of the deterministic simulated
// machine, or threads with a GPU each, which they share where there are too few.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"

#if !defined(__CUDACC__)
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"
#endif
#include "support/gpus.hpp"

namespace mscclpp_test {

using namespace mscclpp;

inline namespace MSCCLPP_BACKEND {

struct Rank {
  Communicator& communicator;
  Stream& stream;
  int rank;
  int size;
  Device device;

  // See there.
  void meet() const { meetOnGpus(communicator); }

  // Ahead of a further kernel of this rank. Where ranks share a GPU, one that waits in its stream keeps another rank's
  // from being started, now and then, so the one before must have ended.
  void pace() const {
    if (device.kind == DeviceKind::cuda && communicator.ranksPerDevice() > 1) stream.synchronize();
  }

  // Ends when all ranks' kernels have, with their reports as an error.
  void synchronize() const {
    communicator.synchronize(stream);
    communicator.bootstrap()->barrier();
  }
};

struct WorldOptions {
  std::uint64_t seed = 1;
  double preemption = 0.05;
};

// False, with a message, where this machine has too few devices.
inline bool canRun(int ranks) {
#if defined(__CUDACC__)
  REQUIRE_MESSAGE(Device::count(DeviceKind::cuda) > 0, "no GPU: this program is for machines that have one");
  return hasGpus(ranks);
#else
  (void)ranks;
  return true;
#endif
}

inline void forEachRank(int ranks, std::function<void(Rank&)> const& body, WorldOptions options = {}) {
  auto const runRank = [&](Communicator& communicator) {
    Stream stream(communicator.device());
    Rank rank{communicator, stream, communicator.rank(), communicator.size(), communicator.device()};
    body(rank);
  };
#if defined(__CUDACC__)
  (void)options;
  runOnGpus(ranks, runRank);
#else
  if (Device::count(DeviceKind::sim) < ranks) sim::install({.devices = ranks});
  sim::run({.ranks = ranks, .seed = options.seed, .preemption = options.preemption}, [&](sim::RankContext& context) {
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    runRank(communicator);
  });
#endif
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
