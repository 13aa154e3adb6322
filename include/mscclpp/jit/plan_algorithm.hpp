// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans as algorithms of a collection, as dsl::planAlgorithm() makes them, compiled while the program runs where
// MSCCLPP_JIT lets them be. Needs mscclpp::jit and mscclpp::collectives.
#pragma once

#include <memory>

#include "mscclpp/dsl/plan_algorithm.hpp"
#include "mscclpp/jit/plan_executor.hpp"

namespace mscclpp::jit {

// Throws invalidUsage for a collective that collections lack, or a wrong MSCCLPP_JIT.
inline std::shared_ptr<Algorithm const> planAlgorithm(dsl::ExecutionPlan const& plan) {
  (void)compileWhen();
  return dsl::detail::algorithmOf<PlanExecutor>(plan, nullptr);
}

}  // namespace mscclpp::jit
