// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joins chunks that no step takes apart: a message that every step moves whole is one chunk, however many the program
// cuts it into, and costs the arithmetic of one. After the proof, whose diagnostics count the author's chunks.
//
// The bytes that each step moves stay the same ones on all ranks: where all operands begin and end at every n-th chunk,
// only those borders matter, and all ranks cut there.
#pragma once

#include <numeric>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

// How many chunks become one.
constexpr int coarsen(Program& program) {
  auto& collective = program.collective;
  // By buffer and rank nothing but multiples of it is ever named.
  int together = std::gcd(collective.inputPerSlice(), collective.outputPerSlice());
  for (auto const& rank : program.ranks) {
    together = std::gcd(together, rank.scratchChunks);
    for (auto const& block : rank.blocks) {
      for (auto const& step : block.steps) {
        if (step.kind == StepKind::loopBegin) return 1;  // its turns cut chunks, by their number
        for (auto const* operands : {&step.sources, &step.targets}) {
          for (auto const& chunks : *operands) together = std::gcd(std::gcd(together, chunks.index), chunks.count);
        }
      }
    }
  }
  if (together <= 1) return 1;
  int const input = collective.inputPerSlice() / together, output = collective.outputPerSlice() / together;
  if (collective.kind == CollectiveKind::custom || collective.kind == CollectiveKind::allReduce) {
    collective.customInput = input;
    collective.customOutput = output;
  } else {
    collective.chunkFactor = input;
    if (collective.customInput > 0) collective.customInput = input;
  }
  for (auto& rank : program.ranks) {
    rank.scratchChunks /= together;
    for (auto& block : rank.blocks) {
      for (auto& step : block.steps) {
        for (auto* operands : {&step.sources, &step.targets}) {
          for (auto& chunks : *operands) {
            chunks.index /= together;
            chunks.count /= together;
          }
        }
      }
    }
  }
  return together;
}

}  // namespace mscclpp::dsl
