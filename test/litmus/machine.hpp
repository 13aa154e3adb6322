// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs litmus tests on the simulated machine: kernels that carry out a program, one thread of it each, by the public
// device functions, and by plain reads and writes in code that the checker sees.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "litmus.hpp"
#include "mscclpp/sim/explore.hpp"

namespace litmus {

struct Observed {
  std::set<Outcome> outcomes;
  bool complete = false;
  bool racy = false;
  std::string other;  // report of a finding that is no race; empty: none
  std::uint64_t schedules = 0;
};

// Explores the program; its machine has as many devices as it names. No limit on findings, none is shrunk, and a signal
// that nobody sees is none.
Observed observe(Program const& program, mscclpp::sim::ExploreOptions options);

}  // namespace litmus
