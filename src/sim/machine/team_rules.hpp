// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For the machine, whose memory it is.
#pragma once

#include <cstddef>

#include "mscclpp/sim/backend/team_rules.hpp"

namespace mscclpp::sim {

// That memory is released: what comes to lie there is another team.
void forgetTeams(void const* memory, std::size_t bytes);

}  // namespace mscclpp::sim
