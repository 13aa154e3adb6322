// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes out every sync that the program is right without, one after the other, each by proof.
//
// Costs one verification for each sync: for programs that are made at run time, and small ones at compile time.
#pragma once

#include <utility>
#include <vector>

#include "mscclpp/dsl/detail/verify/verify.hpp"

namespace mscclpp::dsl {

// How many were taken out. A program that is not right stays as it is.
constexpr int pruneSyncs(Program& program) {
  if (!verify(program).right()) return 0;
  int pruned = 0;
  for (auto& rank : program.ranks) {
    for (auto& block : rank.blocks) {
      for (std::size_t s = 0; s < block.steps.size();) {
        if (block.steps[s].kind != StepKind::sync) {
          ++s;
          continue;
        }
        auto const removed = block.steps[s];
        block.steps.erase(block.steps.begin() + static_cast<std::ptrdiff_t>(s));
        if (verify(program).right()) {
          ++pruned;
        } else {
          block.steps.insert(block.steps.begin() + static_cast<std::ptrdiff_t>(s), removed);
          ++s;
        }
      }
    }
  }
  return pruned;
}

}  // namespace mscclpp::dsl
