// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What will be run: one case per collective, type, operation, size and algorithm, with its launch shape and number of
// repetitions. The same on every rank, since it follows from the options and from facts that the ranks have agreed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exchange.hpp"
#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "options.hpp"

namespace mscclpp::bench {

// What the ranks have in common.
struct WorldFacts {
  DeviceKind machine = DeviceKind::sim;
  int ranks = 1;
  std::string device{};    // product name of rank 0's
  bool wholeLines = true;  // all links deliver 128-byte lines whole
  std::uint32_t maxBlocks = largestGrid;
  std::string noMulticast{};  // why nothing can go through a switch between the devices; empty where it can
};

struct Case {
  Collective collective = Collective::allReduce;
  DataType type{};
  ReduceOp operation = ReduceOp::none;
  std::size_t count = 0;  // elements of a slot, which is the smaller of the two buffers
  int slots = 1;          // of the larger buffer
  Contender contender = Contender::own;
  bool inPlace = false;
  // Ours only:
  std::string algorithmName;
  LaunchShape shape{};
  bool overlap = false;
  bool rankOrder = true;  // as Kernel::rankOrder
  int operations = 1;     // in one repetition, each reading what the one before it wrote
  int replays = 1;

  bool own() const { return contender == Contender::own; }
  // Results have the bits of rank order; else they may differ by the order of additions and by rounding in between.
  bool inRankOrder() const { return own() && rankOrder; }
  std::uint64_t slotBytes() const { return std::uint64_t{count} * bytesOf(type); }
  std::uint64_t elements() const { return std::uint64_t{count} * static_cast<std::uint64_t>(slots); }
  // Of the larger buffer.
  std::uint64_t bytes() const { return elements() * bytesOf(type); }
  std::string algorithm() const { return own() ? algorithmName : std::string(nameOf(contender)); }
  // "allreduce/oneshot_ll128/bfloat16/sum/1024"
  std::string name() const;
  // The same without the algorithm: what can be compared.
  std::string subject() const;
};

// The kernel of one of our cases; null where there is none. Collectives that move data have one for all types.
Kernel const* kernelOf(Case const& item, WorldFacts const& facts);

// Algorithms of the options' collectives that cannot run here, and why; empty where all can.
std::string leftOutOf(Options const& options, WorldFacts const& facts);

// Throws UsageError where the options leave nothing to run, or name what the machine or the type does not allow.
std::vector<Case> planCases(Options const& options, WorldFacts const& facts);

// The workspace in which every one of the cases can run.
layout::WorkspaceRequirement requirementOf(std::vector<Case> const& cases, WorldFacts const& facts);

// Operations that precede the timed ones of a repetition, so that all ranks are at the same point when timing starts.
inline constexpr int leadOperations = 2;

// Largest `operations` with which the values of the timed data stay finite.
int maxOperations(Collective collective, DataType type, ReduceOp operation, int ranks);

}  // namespace mscclpp::bench
