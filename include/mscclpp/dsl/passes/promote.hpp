// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes relaxed signals and waits ordered ones where the program is right only so: where data are read of which nothing
// but a relaxed signal tells. The others stay relaxed. Kernels carry out both alike, so it costs nothing.
#pragma once

#include "mscclpp/dsl/detail/verify/verify.hpp"

namespace mscclpp::dsl {

// How many steps; a program that is wrong without its relaxed steps as well may have some promoted.
constexpr int promoteRelaxed(Program& program) {
  int promoted = 0;
  if (!detail::Bounds(program).check().empty()) return 0;
  for (bool more = true; more;) {
    more = false;
    detail::Handovers handovers;
    detail::Verifier verifier(program, &handovers);
    (void)verifier.run();
    for (auto const& place : handovers.needed()) {
      auto& step = program.ranks[static_cast<std::size_t>(place.rank)]
                       .blocks[static_cast<std::size_t>(place.block)]
                       .steps[static_cast<std::size_t>(place.step)];
      if (!step.relaxed) continue;
      step.relaxed = false;
      step.promoted = true;
      more = true;
      ++promoted;
    }
  }
  return promoted;
}

// The verdict on a program whose relaxed steps have been promoted where it needs that, unless it is strict.
constexpr Verdict prove(Program& program) {
  auto verdict = verify(program);
  if (verdict.right() || program.strict) return verdict;
  int const promoted = promoteRelaxed(program);
  if (promoted != 0) verdict = verify(program);
  verdict.promoted = promoted;
  return verdict;
}

}  // namespace mscclpp::dsl
