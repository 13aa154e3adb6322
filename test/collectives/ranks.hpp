// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one test body on every rank: fibers of the deterministic simulated machine, or threads with GPUs.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"
#include "support/gpus.hpp"
#if MSCCLPP_HAS_SIM
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"
#endif

namespace mscclpp_test {

using namespace mscclpp;

inline void forEachRankOn(DeviceKind kind, int ranks, std::function<void(Communicator&)> const& body,
                          std::uint64_t seed = 1) {
  if (kind == DeviceKind::cuda) {
    if (hasGpus(ranks)) runOnGpus(ranks, body);
    return;
  }
#if MSCCLPP_HAS_SIM
  if (Device::count(DeviceKind::sim) < ranks) sim::install({.devices = ranks});
  sim::run({.ranks = ranks, .seed = seed}, [&](sim::RankContext& context) {
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    body(communicator);
  });
#else
  (void)seed;
  MESSAGE("left out: this build has no simulated GPUs");
#endif
}

// What an Error says; empty where nothing is thrown.
template <class F>
std::string errorOf(F&& f, ErrorCode code) {
  try {
    f();
  } catch (Error const& error) {
    CHECK_MESSAGE(error.code() == code, error.what());
    return error.what();
  }
  return {};
}

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

// No doctest CAPTURE: ranks take turns, and it keeps one stack for all.
inline void checkContains(std::string const& text, std::string const& part) {
  CHECK_MESSAGE(contains(text, part), "\"", text, "\" lacks \"", part, "\"");
}

}  // namespace mscclpp_test
