// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cuts every chunk into several, and every moving step with it: the same blocks do the same work in smaller steps, each
// of which may be ordered, and so begun, by itself.
#pragma once

#include <utility>
#include <vector>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

// The program with each chunk cut into `parts`: a move of n chunks becomes n * parts moves of one, all other steps and
// the ranks' channels stay.
constexpr Program splitChunks(Program const& program, int parts) {
  Program split = program;
  split.collective.chunkFactor *= parts;
  split.collective.customInput *= parts;
  split.collective.customOutput *= parts;
  split.expectations.clear();
  for (auto const& wanted : program.expectations) {
    for (int part = 0; part < parts; ++part) {
      Expectation mine{wanted.rank, wanted.chunk * parts + part, {}};
      for (auto const& each : wanted.holds) mine.holds.push_back({each.rank, each.chunk * parts + part});
      split.expectations.push_back(std::move(mine));
    }
  }
  for (auto& rank : split.ranks) {
    rank.scratchChunks *= parts;
    for (auto& block : rank.blocks) {
      std::vector<Step> steps;
      for (auto const& step : block.steps) {
        if (step.kind != StepKind::move) {
          steps.push_back(step);
          continue;
        }
        for (int part = 0; part < step.sources[0].count * parts; ++part) {
          auto piece = step;
          for (auto* operands : {&piece.sources, &piece.targets}) {
            for (auto& chunks : *operands) {
              chunks.index = chunks.index * parts + part;
              chunks.count = 1;
            }
          }
          steps.push_back(std::move(piece));
        }
      }
      block.steps = std::move(steps);
    }
  }
  return split;
}

}  // namespace mscclpp::dsl
