// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The PTX memory model in its axiomatic form, for programs of litmus size: every candidate execution is built and held
// against the axioms of the chapter "Memory Consistency Model" of the PTX ISA. Knows nothing of the simulated machine.
//
// Cost: microseconds for two threads, milliseconds for four.
#pragma once

#include <set>

#include "litmus.hpp"

namespace litmus {

struct Judgement {
  std::set<Outcome> allowed;
  // Those that some execution shows in which each access takes effect after all earlier ones of its thread: program
  // order, reads-from, the order of sequential fences and that of barriers form no cycle.
  std::set<Outcome> inOrder;
  bool racy = false;         // some allowed execution has a data race
  bool racyInOrder = false;  // one without such a cycle has
};

Judgement judge(Program const& program);

}  // namespace litmus
