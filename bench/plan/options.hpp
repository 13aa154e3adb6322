// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of mscclpp-bench. Flags of Google Benchmark (--benchmark_...) are set aside for it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/runtime.hpp"
#include "plan/usage.hpp"

namespace mscclpp::bench {

enum class AlgorithmChoice : std::uint8_t { automatic, all, named };

// How calls get into the stream, and what is timed.
enum class LaunchMode : std::uint8_t {
  graph,  // captured; the device's time of one of a chain
  eager,  // by the library's execute(), one after another; the time of the whole loop
  host,   // likewise; the processor's time of each call
};
inline constexpr std::array launchModes{LaunchMode::graph, LaunchMode::eager, LaunchMode::host};
constexpr std::string_view nameOf(LaunchMode mode) {
  constexpr std::array<std::string_view, launchModes.size()> names{"graph", "eager", "host"};
  return names[static_cast<std::size_t>(mode)];
}

// Whose collective it is.
enum class Contender : std::uint8_t {
  own,
  nccl,
  ncclSymmetric,  // NCCL on memory registered for its symmetric kernels
};

// Only of the peers.
inline constexpr std::array peerNames{std::string_view("nccl"), std::string_view("nccl-symmetric")};
constexpr std::string_view nameOf(Contender contender) {
  return contender == Contender::own ? std::string_view("own") : peerNames[static_cast<std::size_t>(contender) - 1];
}

// An empty optional is a default that depends on the machine or on the case.
struct Options {
  std::optional<DeviceKind> device;
  std::optional<int> ranks;
  std::optional<int> devices;  // no more than these, the first ones
  LaunchMode launch = LaunchMode::graph;
  AlgorithmChoice algorithmChoice = AlgorithmChoice::automatic;
  std::vector<std::string> algorithms;  // where named
  std::vector<Collective> collectives{Collective::allReduce};
  bool everyCollective = false;  // all that there are, rather than these by name
  std::vector<DataType> types{DataType::bfloat16};
  std::vector<ReduceOp> operations{ReduceOp::sum};
  std::uint64_t minBytes = std::uint64_t{1} << 10;
  std::optional<std::uint64_t> maxBytes;
  std::uint64_t factor = 4;
  bool inPlace = false;
  std::vector<Contender> peers;
  bool check = true;
  std::optional<int> replays;
  std::optional<int> operationsPerGraph;
  std::optional<std::uint32_t> blocks;
  std::optional<std::uint32_t> threads;
  std::optional<bool> overlap;
  std::optional<std::uint64_t> seed;
  bool dryRun = false;  // tell what would be run
  std::string output;
  std::string plot;    // folder for figures; empty: none
  std::string limits;  // not empty: measure the figures of the cost model and write them there, nothing else
};

struct CommandLine {
  Options options;
  std::vector<std::string> benchmarkArguments;  // for Google Benchmark, without the program's name
  std::string help;                             // not empty: print it and end with status 0
};

// `arguments` without the program's name. Throws UsageError, one line that names the flag, the value and what is
// allowed.
CommandLine parseCommandLine(std::vector<std::string> const& arguments);

// The collectives that can be timed.
inline constexpr std::array timedCollectives{Collective::allReduce, Collective::allGather, Collective::reduceScatter,
                                             Collective::allToAll,  Collective::broadcast, Collective::reduce,
                                             Collective::gather,    Collective::scatter,   Collective::sendRecv};

}  // namespace mscclpp::bench
