// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk copies of a simulated kernel. Called by arch/sim/bulk_copy.hpp; device/bulk_copy.hpp has the contract.
//
// A copy reads its source and writes its target at some time between its start and its end; when, is a choice of the
// run. They fail the kernel where an address or count is misaligned or out of range, or a barrier is misused.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mscclpp::sim {

void bulkStore(void* dst, void const* src, std::size_t bytes);
// A store after which each unit of 4 or 8 bytes is combine(what was there, the one of the source).
void bulkReduce(void* dst, void const* src, std::size_t bytes, unsigned unit,
                std::uint64_t (*combine)(std::uint64_t found, std::uint64_t operand));
void bulkCommit();
// For all groups of this thread but the newest.
void bulkWait(unsigned newest);
void bulkWaitRead(unsigned newest);
void bulkFence();
void bulkLoad(void* dst, void const* src, std::size_t bytes, std::uint64_t* barrier);

// 4 or 8 bytes, as they are at the call.
void putCounted(void* dst, void const* value, std::size_t bytes, std::uint64_t* barrier);

void initBarrier(std::uint64_t* barrier, unsigned count);
void invalidateBarrier(std::uint64_t* barrier);
void arriveBarrier(std::uint64_t* barrier, unsigned expectedBytes);
bool testBarrier(std::uint64_t* barrier, unsigned parity);

// From the beginning of the block's shared memory.
std::uint32_t sharedOffset(void const* address);

}  // namespace mscclpp::sim
