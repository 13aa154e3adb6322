// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What will be run: one case per type, operation, size and algorithm, with its launch shape and number of repetitions.
// The same on every rank, since it follows from the options and from facts that the ranks have agreed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "options.hpp"

namespace mscclpp::bench {

// What the ranks have in common.
struct WorldFacts {
  DeviceKind machine = DeviceKind::sim;
  int ranks = 1;
  bool wholeLines = true;  // all links deliver 128-byte lines whole
  std::uint32_t maxBlocks = maxAllReduceBlocks;
};

struct Case {
  ElementType type{};
  Operation operation{};
  std::size_t count = 0;
  bool nccl = false;  // NCCL's; `choice` and `overlap` mean nothing then
  bool inPlace = false;
  AllReduceChoice choice{};
  bool overlap = false;
  int operations = 1;  // in one repetition, each reading what the one before it wrote
  int replays = 1;

  std::uint64_t bytes() const { return std::uint64_t{count} * bytesOf(type); }
  std::string algorithm() const { return nccl ? "nccl" : std::string(name(choice.algorithm)); }
  // "allreduce/oneshot_ll128/bfloat16/sum/1024"
  std::string name() const;
  // The same without the algorithm: what can be compared.
  std::string subject() const;

 private:
  static std::string_view name(AllReduceAlgorithm algorithm) { return mscclpp::name(algorithm); }
};

// Throws UsageError where the options leave nothing to run, or name what the machine or the type does not allow.
std::vector<Case> planCases(Options const& options, WorldFacts const& facts);

// The workspace in which every one of the cases can run.
layout::WorkspaceRequirement requirementOf(std::vector<Case> const& cases, int ranks);

// Operations that precede the timed ones of a repetition, so that all ranks are at the same point when timing starts.
inline constexpr int leadOperations = 2;

// Largest `operations` with which the values of the timed data stay finite.
int maxOperations(ElementType type, Operation operation, int ranks);

}  // namespace mscclpp::bench
