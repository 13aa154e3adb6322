// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A lowered program as one constant, which kernels are made of.
#pragma once

#include <cstddef>

#include "mscclpp/layout/plan_handle.hpp"

namespace mscclpp::dsl::detail {

// The steps of one rank, or of all, in one block, or in all that are as far from the begin of their instance: see
// Slice.
struct SliceRange {
  int rank = -1;
  unsigned block = 0, period = 1;
  int firstStep = 0, steps = 0, firstOperand = 0, firstObject = 0;
};

struct ImageRoom {
  std::size_t slices = 256, steps = 1024, operands = 4096, objects = 2048;

  constexpr bool holds(ImageRoom const& need) const {
    return need.slices <= slices && need.steps <= steps && need.operands <= operands && need.objects <= objects;
  }
};

// All that is found out of a program type, in one evaluation, which is what compiling it costs: the verdict, and the
// slices that kernels are made of, unless they are too long for that. A constant outlives its evaluation only with room
// of a fixed size.
template <ImageRoom Room>
struct Image {
  static constexpr std::size_t diagnosticRoom = 1024;
  std::size_t diagnosticSize = 0;
  char diagnostic[diagnosticRoom]{};
  layout::PlanShape shape{};
  bool isCode = false;  // else kernels interpret the context's table
  ImageRoom sizes{0, 0, 0, 0};
  bool fits = true;
  SliceRange slices[Room.slices + 1]{};
  layout::PlanStep steps[Room.steps + 1]{};
  layout::PlanOperand operands[Room.operands + 1]{};
  layout::RankNumber objects[Room.objects + 1]{};
};

}  // namespace mscclpp::dsl::detail
