// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each collective asks of its buffers, and what is told to a caller who gives others.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/call/remembered_calls.hpp"
#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp::collectives_impl {

// "rank 1: allreduce of 1000 bytes of float32"
std::string titleOf(int rank, Collective collective, CollectiveCall const& call);

// Throws invalidUsage where sizes do not fit together, a buffer is missing, astray or overlaps the other, or root or
// operation make no sense.
void checkCall(World const& world, Collective collective, CollectiveCall const& call);

// Of checked calls: the bytes of the smaller buffer, as KernelCall::count counts them; what SelectionRequest calls
// `bytes`; what is used of this rank's buffers.
std::size_t partBytesOf(Collective collective, int ranks, CollectiveCall const& call);
std::size_t wholeBytes(Collective collective, int ranks, CollectiveCall const& call);
BufferUse buffersOf(World const& world, Collective collective, CollectiveCall const& call);

// Whether the buffers are the collective's in-place form.
bool isInPlace(int rank, Collective collective, CollectiveCall const& call);

}  // namespace mscclpp::collectives_impl
