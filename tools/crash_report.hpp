// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns a crash of checked code into a finding: a plain access outside of all memory, a failed assert, a stack that ran
// over. The machine cannot go on afterwards.
#pragma once

#include <functional>

#include "mscclpp/sim/finding.hpp"

namespace mscclpp::tools {

// From now on a deadly signal in this thread calls `report`, on a stack of its own, and ends the process with
// `exitStatus`. A second signal, or 30 s without an end, kills it.
void reportCrashes(int exitStatus, std::function<void(sim::Finding const&)> report);

}  // namespace mscclpp::tools
