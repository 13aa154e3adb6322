// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Findings about how a run has ended: nobody goes on, nothing changes, a kernel or a rank's code has failed.
//
// Called between the end of the run and its unwinding. A finding's key is made of the places alone, without the numbers
// in their descriptions, so that it is the same in every schedule.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mscclpp/sim/finding.hpp"
#include "sim/machine/rank_run.hpp"

namespace mscclpp::sim {

std::vector<Finding> findingsOfEnd(RunEnd end, RankRun const& run);
Finding nothingCheckedFinding();
Finding leakFinding(std::size_t allocations, std::size_t streams);

}  // namespace mscclpp::sim
