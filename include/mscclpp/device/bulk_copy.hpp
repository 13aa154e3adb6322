// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk copies between block-shared and global memory: one thread starts them, the hardware carries them out, and the
// thread goes on meanwhile. From compute capability 9.0; hasBulkCopies() tells, and elsewhere each of these traps.
//
//   bulkStore(dst, src, bytes)            from block-shared memory into global memory, of this device or of a peer
//   bulkCommit()                          this thread's stores since its last commit become one group
//   bulkWait<N>()                         all of its groups but the newest N have arrived
//   bulkWaitRead<N>()                     of these, the sources may be written again
//   bulkLoad(dst, src, bytes, barrier)    from global into block-shared memory; `barrier` counts the bytes that come
//   bulkFence()                           what the caller has written, or knows of, copies started after it see
//   putCounted(dst, value, barrier)       4 or 8 bytes from a register into the shared memory of any block of the
//                                         cluster (arch::ofClusterBlock()), of which a barrier there counts the bytes
//   BulkBarrier                           where threads arrive and wait for each other and for loads
//   copyChunk(dst, src, bytes)            16 bytes from global into block-shared memory by any thread, which goes on
//                                         meanwhile: `bytes` of the source, even and maybe none, and zeros behind them;
//                                         plain accesses as far as order goes. barrier.arriveBehindCopies() tells
//
// One thread calls, but for putCounted and copyChunk, which any do. Both addresses and `bytes` are multiples of 16;
// `bytes` is not 0 and fits the block's shared memory.
//
// Order. Copies reach memory by another way than loads and stores do (PTX: the async proxy). Whatever a thread has
// written, a copy may read or overwrite only after a bulkFence() of that thread, or of one that it has been ordered
// before; reads need none, nor does what an earlier kernel has written. After bulkWait() the caller's copies count as
// its own writes: it may signal a peer. After a wait at the barrier the loaded bytes may be read. A store that nobody
// waits for arrives before the kernel ends, but a thread may not end before its sources have been read (bulkWaitRead),
// nor a block before its loads, and what is put into its memory, have come. putCounted orders its own bytes and nothing
// else: no store of its thread that is on its way to another GPU is waited for.
//
// Cost: an instruction each; a copy of some KiB keeps a link as busy as a whole block of storing threads. By putCounted
// a sum over 8 blocks of a cluster takes 0.43 us on an H200, by words that are polled or the cluster's barrier 0.66 to
// 0.78.
#pragma once

#include <cstdint>

#include "mscclpp/device/poll.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/bulk_copy.hpp"
#else
#include "mscclpp/device/arch/sim/bulk_copy.hpp"
#endif

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

using arch::bulkCommit;
using arch::bulkFence;
using arch::bulkStore;
using arch::bulkWait;
using arch::bulkWaitRead;
using arch::copyChunk;
using arch::hasBulkCopies;

// Lies in block-shared memory. Phases follow each other: one ends when `count` arrivals and all announced bytes have
// come, and the next begins. The phases' parities alternate, starting with 0; a thread passes each phase's parity, and
// may lag behind by one phase at most. An arrival releases, a successful wait acquires, in the block.
class BulkBarrier {
 public:
  // By one thread; the block meets (sync) before others use the barrier. `count`: arrivals of each phase, 1 to
  // 1,048,575.
  MSCCLPP_DEVICE void init(unsigned count) { arch::initBarrier(&state_, count); }
  // Before the memory is used for anything else, or init() called again; nobody may wait or have bytes on the way.
  MSCCLPP_DEVICE void invalidate() { arch::invalidateBarrier(&state_); }

  MSCCLPP_DEVICE void arrive() { arch::arriveBarrier(&state_); }
  // An arrival that comes once the caller's copyChunk()s are there.
  MSCCLPP_DEVICE void arriveBehindCopies() { arch::arriveBehindCopies(&state_); }
  // One arrival, and the phase waits for so many bytes of loads as well; at most 1,048,575 at a time.
  MSCCLPP_DEVICE void arriveExpect(unsigned bytes) { arch::arriveBarrier(&state_, bytes); }

  // Whether the phase of that parity has ended.
  MSCCLPP_DEVICE bool tryWait(unsigned parity) { return arch::testBarrier(&state_, parity); }
  MSCCLPP_DEVICE void wait(layout::Watch* watch, unsigned parity) {
    poll(watch, {layout::WaitKind::bulkBarrier, -1, arch::sharedAddress(&state_), parity}, [&](std::uint64_t& seen) {
      seen = 1 - parity;
      return tryWait(parity);
    });
  }

  // Where `dst` lies in another block, the cluster has met behind init() (arch::arriveAtCluster(), awaitCluster()).
  template <class T>
  friend MSCCLPP_DEVICE void putCounted(T& dst, T const& value, BulkBarrier& barrier) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "putCounted: 4 or 8 bytes");
    arch::putCounted(&dst, value, &barrier.state_);
  }
  friend MSCCLPP_DEVICE void bulkLoad(void* dst, void const* src, std::uint32_t bytes, BulkBarrier& barrier) {
    arch::bulkLoad(dst, src, bytes, &barrier.state_);
  }

 private:
  std::uint64_t state_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
