// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a simulated GPU thread asks of its block, warp and kernel. The names behind arch/sim/thread.hpp; nothing else
// calls them. Each may let other threads run before it returns.
#pragma once

#include <cstddef>

namespace mscclpp::sim {

// How many threads came.
unsigned syncBlock();
void syncWarp(unsigned mask);
unsigned syncBarrier(unsigned id, unsigned threads);
void syncCluster();
// In two parts, which order no memory: a thread awaits those that have arrived as often as it has.
void arriveAtCluster();
void awaitCluster();

// Gives `out` the `bytes` (at most 16) that `lane` passed as `in`. Fails the kernel if that lane takes no part.
void shuffle(void const* in, void* out, std::size_t bytes, unsigned lane, unsigned mask);
unsigned ballot(bool predicate, unsigned mask);

// The block's storage for `key`: the same address for every thread, filled with a pattern when first asked for.
void* blockShared(void const* key, std::size_t bytes, std::size_t alignment);
// What another block of the cluster got for the key for which this one got `own`.
void* sharedOfCluster(void* own, unsigned rank);
// Null for a kernel that was launched without dynamic shared memory.
std::byte* dynamicShared();

void waitForPreviousKernel();
void allowNextKernel();

// Leaves by an exception that the thread's frame catches, so destructors on the way run.
[[noreturn]] void exitKernel();
[[noreturn]] void trap(char const* why);

}  // namespace mscclpp::sim
