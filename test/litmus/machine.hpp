// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs litmus tests on the simulated machine: kernels that carry out a program, one thread of it each, by the public
// device functions, and by plain reads and writes in code that the checker sees. One of its threads may be host code,
// which has std::atomic_ref.
#pragma once

#include <cstdint>
#include <optional>
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

// Which thread of a program is host code, and how: code of the rank, or another thread of its process.
struct Host {
  enum class Kind : std::uint8_t { none, rank, background } kind = Kind::none;
  int thread = 0;
  bool sequential = false;  // every order is std::atomic's default
};

// The program with that thread on a device of its own, its accesses in the scope of the system: what the axioms know of
// hosts. With `fences`, one of sequential consistency comes before each of its ordered accesses, as that order asks
// for. Nothing where the thread has barriers, or no room for the fences.
std::optional<Program> asHost(Program const& program, int thread, bool fences);

// Explores the program; its machine has as many devices as it names. No limit on findings, none is shrunk, and a signal
// that nobody sees is none.
Observed observe(Program const& program, mscclpp::sim::ExploreOptions options, Host host = {});

}  // namespace litmus
