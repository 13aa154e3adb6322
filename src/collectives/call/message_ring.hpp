// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collective `sendRecv` by messages: every rank sends its input to the rank behind it in a ring, and receives from
// the one before it. One algorithm for all collections.
#pragma once

#include <memory>

#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp::collectives_impl {

std::shared_ptr<Algorithm> messageRing();

}  // namespace mscclpp::collectives_impl
