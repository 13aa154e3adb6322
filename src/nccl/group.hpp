// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ncclGroupStart and ncclGroupEnd: inside, calls of this thread are only noted; the outermost end starts them, each
// communicator's on a thread of its own where there are several, since their first use waits for other ranks.
//
// The first error of a call inside is what the end returns, and then it starts nothing.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "nccl/abi.hpp"
#include "nccl/comm.hpp"

namespace mscclpp::nccl {

class Handle;

void groupStart();
// Throws invalidUsage without a start.
ncclResult_t groupEnd();
// In its place: how long what is in the group would take, by the model of costs, and nothing is started.
ncclResult_t groupSimulateEnd(double& seconds);
bool inGroup() noexcept;
// A call inside has failed.
void spoilGroup(ncclResult_t code) noexcept;

// Starts it, or notes it where a group is open.
void enqueue(std::shared_ptr<Comm> const& comm, Operation const& operation);
void enqueue(std::shared_ptr<Comm> const& comm, std::span<OneSided const> operations);
// Something that waits for other ranks. Jobs of one communicator run one after another, those of several side by side;
// with `blocking` false nobody waits for their end, which `handle` tells.
ncclResult_t enqueueJob(Handle const* communicator, bool blocking, std::function<void()> job);

}  // namespace mscclpp::nccl
