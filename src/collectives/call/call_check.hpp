// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each collective asks of its buffers, and what is told to a caller who gives others.
#pragma once

#include <cstddef>
#include <string>

#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp::collectives_impl {

// "rank 1: allreduce of 1000 bytes of float32"
std::string titleOf(Communicator const& communicator, Collective collective, CollectiveCall const& call);

// Throws invalidUsage where sizes do not fit together, a buffer is missing, astray or overlaps the other, or root or
// operation make no sense. Returns the bytes of the smaller buffer, as KernelCall::count counts them.
std::size_t checkCall(Communicator const& communicator, Collective collective, CollectiveCall const& call);

// Whether the buffers are the collective's in-place form; of a checked call.
bool isInPlace(Communicator const& communicator, Collective collective, CollectiveCall const& call);

// Of all-gather and gather the output, else the input: what SelectionRequest calls `bytes`.
std::size_t wholeBytes(Collective collective, int ranks, CollectiveCall const& call);

}  // namespace mscclpp::collectives_impl
