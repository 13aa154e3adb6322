// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the programs with tables of their own share: their ranks, times of operations that follow each other in a
// stream, of the slowest rank, and how many blocks to try. Of the latter all ranks call.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "machine/machine.hpp"
#include "machine/over_ranks.hpp"
#include "machine/timer.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp::bench {

// body(communicator) on so many ranks of that machine; 0: one for each device, 8 at most. `result` is told how many
// they are, on how many devices, and what the machine notes. Throws Error.
template <class Result, class Body>
void onRanks(DeviceKind kind, int ranks, Result& result, Body const& body) {
  if (ranks > 1) shareDevices();
  auto& used = *machine(kind);
  used.prepare(ranks != 0 ? ranks : 8);
  int const devices = Device::count(kind);
  result.ranks = ranks != 0 ? ranks : std::min(8, devices);
  result.devices = std::min(result.ranks, devices);
  result.note = used.note();
  runRanks(devicesInTurn(kind, result.ranks), [&](Communicator& communicator) {
    used.use(communicator.device());
    body(communicator);
  });
}

// Microseconds per operation.
struct ChainTimes {
  double median = 0;
  double p99 = 0;
};

// Of so many replays, or of fewer, at least 5, where these would take more than half a second.
inline ChainTimes timeChain(Communicator const& communicator, Stream const& stream, Timer& timer, int operations,
                            int replays, std::function<void()> const& operate) {
  auto const timesOf = [&](int count) {
    auto times = timer.measure({.restore = [] {},
                                .operate = [&](int, bool) { operate(); },
                                .operations = operations,
                                .together = [&] { communicator.bootstrap()->barrier(); },
                                .synchronize = [&] { communicator.synchronize(stream, std::chrono::minutes(1)); }},
                               count);
    // Each replay, and each rank, in turn.
    for (double& one : times) one = largest(communicator, one);
    return times;
  };
  constexpr int least = 5;
  auto times = timesOf(std::min(least, replays));
  auto const most = 0.5 / std::max(1e-9, *std::ranges::min_element(times) * operations);
  if (replays > least && most > least) times = timesOf(static_cast<int>(std::min<double>(replays, most)));
  std::ranges::sort(times);
  return {.median = times[times.size() / 2] * 1e6, .p99 = times[(times.size() * 99 - 1) / 100] * 1e6};
}

// `asked` where the user did. Else counts with which, at so many of a multiprocessor, all ranks' blocks run at once,
// also where ranks share a GPU.
inline std::vector<unsigned> blocksToTry(Communicator const& communicator, std::vector<unsigned> const& asked,
                                         int ofMultiprocessor = 1) {
  constexpr int ofDevice = 132;  // an H100's and an H200's multiprocessors
  if (!asked.empty()) return asked;
  if (communicator.device().kind == DeviceKind::sim) return {4};
  auto const all = static_cast<unsigned>(ofDevice * ofMultiprocessor / std::max(1, communicator.ranksPerDevice()));
  std::vector<unsigned> tried;
  for (unsigned const blocks : {16u, 32u, 64u, 128u, 256u}) {
    if (blocks <= all) tried.push_back(blocks);
  }
  if (tried.empty()) tried.push_back(std::max(1u, all));
  return tried;
}

}  // namespace mscclpp::bench
