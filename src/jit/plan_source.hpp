// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan as a source that is compiled: its lowered steps as a constant, and the kernel type `Program` of them, a
// template over the element type and the operation.
#pragma once

#include <optional>

#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/jit/source.hpp"

namespace mscclpp::jit {

// With the steps of one rank only, which take a fraction of the time to compile; those of ranks that do the same are
// the same source. Nothing where they are too long for code.
std::optional<Source> planSource(dsl::ExecutionPlan const& plan, dsl::PlanPackets packets, int rank);

}  // namespace mscclpp::jit
