// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What will be run: one case per collective, type, operation, size and algorithm, with what the library makes of the
// call and the number of repetitions. The same on every rank, since it follows from the options and the World.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "plan/exchange.hpp"
#include "plan/options.hpp"

namespace mscclpp::bench {

struct Case {
  Collective collective = Collective::allReduce;
  DataType type{};
  ReduceOp operation = ReduceOp::none;
  std::size_t count = 0;  // elements of a slot, which is the smaller of the two buffers
  int slots = 1;          // of the larger buffer
  Contender contender = Contender::own;
  bool inPlace = false;
  // Of an execution plan, which is no algorithm: its name, and whether its collective is none of the library's.
  std::string plan{};
  bool ofItsOwn = false;
  // Ours only:
  std::shared_ptr<Algorithm const> by{};
  std::optional<KernelLaunch> launch{};  // nothing where the algorithm starts its kernel by itself
  bool chosen = false;                   // by the library, rather than named
  int blocks = 0;                        // as in CollectiveCall
  int threads = 0;
  bool overlap = false;
  int operations = 1;  // in one repetition, each reading what the one before it wrote
  int replays = 1;

  bool own() const { return contender == Contender::own; }
  // Results have the bits of rank order; else they may differ by the order of additions and by rounding in between.
  bool inRankOrder() const { return own() && (!launch || launch->kernel->rankOrder); }
  std::uint64_t slotBytes() const { return std::uint64_t{count} * bytesOf(type); }
  std::uint64_t elements() const { return std::uint64_t{count} * static_cast<std::uint64_t>(slots); }
  // Of the larger buffer.
  std::uint64_t bytes() const { return elements() * bytesOf(type); }
  std::string algorithm() const { return !plan.empty() ? plan : own() ? by->name() : std::string(nameOf(contender)); }
  std::string_view called() const { return ofItsOwn ? "custom" : nameOf(collective); }
  // "allreduce/oneshot_ll128/bfloat16/sum/1024"
  std::string name() const;
  // The same without the algorithm: what can be compared.
  std::string subject() const;

  // As a rank calls the library, with buffers that lie alike on all ranks.
  CollectiveCall call(int ranks, void const* in, void* out, int root) const;
};

struct Plan {
  std::vector<Case> cases;
  std::string leftOut;  // of what was asked for as `all`: what cannot run here, and why
};

// Throws UsageError where the options leave nothing to run, or name what the machine or the type does not allow.
Plan planCases(Options const& options, World world, AlgorithmCollection const& algorithms);

// The workspace in which every one of the cases that have a launch can run.
layout::WorkspaceRequirement requirementOf(std::vector<Case> const& cases);

// Largest `operations` with which the values of the timed data stay finite.
int maxOperations(Collective collective, DataType type, ReduceOp operation, int ranks);

}  // namespace mscclpp::bench
