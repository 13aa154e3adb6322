// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the collectives of all communicators of this process are chosen from: the library's own algorithms, and ahead of
// them the plans in the folder `default` of MSCCLPP_CACHE_DIR, by name, where MSCCL++ installs its own. A plan takes
// the calls that it is for, by ranks, bytes, operation and in place or not; a file that is no right plan is left out,
// which the log tells.
#pragma once

#include <cstdint>
#include <string>

#include "mscclpp/collectives/algorithm_collection.hpp"

namespace mscclpp::nccl {

// As the folder was at the first call.
AlgorithmCollection const& algorithms();
// Of the plans' texts, in order: ranks with equal marks choose alike.
std::uint64_t planMark();
std::string planFolder();

}  // namespace mscclpp::nccl
