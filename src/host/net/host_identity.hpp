// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who this host and this process are, as other ranks compare them.
#pragma once

#include <cstdint>

#include "base/random.hpp"

namespace mscclpp {

// Equal for processes that can hand each other file descriptors: the same boot of the same kernel, and the same network
// namespace, in which abstract unix sockets live.
std::uint64_t hostIdentity();

// Random, fresh in each process, also after fork().
Key128 processIdentity();

}  // namespace mscclpp
