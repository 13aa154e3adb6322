// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says who waits for what: one group for all threads that wait for the same. For whoever drives the machine.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/layout/watch.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {

// Threads that wait for the same, or host code.
struct WaitingGroup {
  int device = 0;
  bool host = false;
  std::string kernel;
  std::vector<unsigned> blocks;   // empty: of the host, or blocks that have not begun
  std::vector<unsigned> threads;  // alike in each of the blocks
  std::string what;               // "waits for ..."
  Task* first = nullptr;          // one of them
  layout::WaitKind kind = layout::WaitKind::none;
  bool missesBlocks = false;  // some of its kernel's blocks have not begun
};

std::string plural(char const* noun, std::vector<unsigned> const& numbers);  // "ranks 1-3,5"
std::string threadsOf(WaitingGroup const& group);                            // "blocks 0-3 threads 0-31"
std::string toString(WaitingGroup const& group);                             // all but its device

// The ranks' host code too in a deterministic run.
std::vector<WaitingGroup> waitingGroups(Machine& machine);
std::string waiters(Machine& machine);       // one line each
std::string takeFailures(Machine& machine);  // of kernels that nobody has been told of

}  // namespace mscclpp::sim
