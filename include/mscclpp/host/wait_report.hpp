// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reports of kernels that gave up waiting, in words.
#pragma once

#include <string>

#include "mscclpp/layout/watch.hpp"

namespace mscclpp {

// "rank 2 block 3 thread 0 waited 10.0 s for packet slot 17 of rank 1: expected flag 5, seen 4"
std::string explain(layout::WaitReport const& report);

// All complete reports of a watch, one line each, equal waits of several threads folded into one, with what to check at
// the end. Empty where there are none.
std::string explain(layout::Watch const& watch);

}  // namespace mscclpp
