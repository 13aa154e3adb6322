// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether a program is right, proved: in every run, under every schedule, call after call, for any message.
//
//   complete         each chunk of output holds exactly the contributions that the collective demands, each once
//   dead-lock free   every wait ends
//   free of races    every read is ordered behind the write that it needs, every write behind the reads before it,
//                    across blocks, ranks, turns of loops and successive calls
//   within bounds    operands, channels, semaphores, barriers, groups
//
// The same code runs while a program is compiled and for plans that are loaded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "mscclpp/dsl/detail/verify/bounds.hpp"
#include "mscclpp/dsl/detail/verify/verifier.hpp"

namespace mscclpp::dsl {

struct Verdict {
  Text diagnostic = {};          // the first thing that is wrong: who, which step, what is missing; empty: nothing
  bool needsEvenChunks = false;  // runs only messages that divide into equally long chunks
  bool reliesOnPackets = false;  // overwrites plain data whose readers have only sent packets of them: right wherever a
                                 // load takes effect before the stores that depend on it, but no order to the checker
  int promoted = 0;              // relaxed steps that were made ordered ones first: see passes/promote.hpp
  bool canAverage = true;        // no reduction makes now a part of a result, now all of it
  std::vector<detail::Reduces> reductions = {};  // by step

  constexpr bool right() const { return diagnostic.empty(); }
};

constexpr Verdict verify(Program const& program) {
  Verdict verdict;
  verdict.diagnostic = detail::Bounds(program).check();
  if (!verdict.right()) return verdict;
  detail::Verifier verifier(program);
  verdict.diagnostic = verifier.run();
  verdict.needsEvenChunks = verifier.needsEvenChunks();
  verdict.reliesOnPackets = verifier.reliesOnPackets();
  verdict.reductions = verifier.reductions();
  for (auto const reduces : verdict.reductions) verdict.canAverage &= reduces != detail::Reduces::both;
  return verdict;
}

// Writes into the steps which of them conclude. `reductions` as in a verdict of this program.
template <class Reductions>
constexpr void markConclusions(Program& program, Reductions const& reductions) {
  std::size_t next = 0;
  for (auto& rank : program.ranks) {
    for (auto& block : rank.blocks) {
      for (auto& step : block.steps) step.concludes = reductions[next++] == detail::Reduces::all;
    }
  }
}

}  // namespace mscclpp::dsl
