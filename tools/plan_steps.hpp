// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of a program in words, and which step ends the wait of which.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/dsl/detail/verify/verify.hpp"

namespace mscclpp::tools {

struct StepPlace {
  int rank = 0, block = 0, step = 0;

  friend auto operator<=>(StepPlace const&, StepPlace const&) = default;
};

enum class ArrowKind : std::uint8_t { signal, semaphore, packets };

// `to` waits for what `from` does. Of steps in a loop: in the same turn.
struct Arrow {
  StepPlace from, to;
  ArrowKind kind;
};

dsl::Step const& stepAt(dsl::Program const& program, StepPlace const& place);

// "put", "reduce by sum", "wait"
std::string nameOfStep(dsl::Step const& step, int rank);
// "output[1] of rank 0 -> output[1] of rank 1, over port channel 2"; empty where the name says all.
std::string detailOfStep(dsl::Program const& program, StepPlace const& place);

// Signals and the waits they end, releases and acquires, packets and who awaits them; each once. What cannot be told
// from the order of the steps alone has no arrow.
std::vector<Arrow> arrowsOf(dsl::Program const& program);

// "allreduce of 8 ranks in place, protocol LL, up to 4 blocks of 1024 threads, 312 steps, 56 memory channels"
std::string summaryOf(dsl::Program const& program);

// All of it, a line for each step.
std::string listingOf(dsl::Program const& program);

}  // namespace mscclpp::tools
