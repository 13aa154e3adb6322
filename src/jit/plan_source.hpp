// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan as a source that is compiled: its lowered steps as a constant, and the kernel type `Program` of them.
#pragma once

#include <optional>

#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/jit/source.hpp"

namespace mscclpp::jit {

// Which of a plan's kernels.
struct PlanKind {
  DataType type;
  ReduceOp op;
  dsl::PlanPackets packets;
};

// With the steps of one rank only, which take a fraction of the time to compile; those of ranks that do the same are
// the same source. Nothing where they are too long for code.
std::optional<Source> planSource(dsl::ExecutionPlan const& plan, PlanKind const& kind, int rank);

}  // namespace mscclpp::jit
