// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which threads of the block take which slots of a moving step. The chunks of one step, and neighbouring steps, begin
// at different warps, so that small ones run side by side.
#pragma once

#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/layout/plan_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// The thread that takes the first slot of a step.
struct StepStart {
  unsigned thread;
  std::uint32_t filled;  // slots of a chunk's place: the longest's, in whole warps
};

// Behind the chunks of the steps ahead, as if they had as many slots as this step's longest, where the block has
// threads for all of them; else some warps on, so that steps begin at different ones.
MSCCLPP_DEVICE StepStart startOf(auto const& step, std::uint32_t slots) {
  auto const threads = arch::blockThreads();
  auto const filled = roundUp(slots, arch::warpSize);
  if (step.ahead == 0) return {0, filled};
  auto const chunks = step.chunksAhead + static_cast<unsigned>(step.chunks);
  if (filled <= threads && chunks * filled <= threads) return {step.chunksAhead * filled, filled};
  // Not by a remainder, which costs as much as all the rest of this.
  unsigned start = step.ahead * arch::warpSize;
  while (start >= threads) start -= threads;
  return {start, filled};
}

// All threads of the block, counted from thread `first`, which then is the next piece's, if this one leaves threads
// without work.
MSCCLPP_DEVICE ThreadRange threadsFrom(unsigned& first, std::uint32_t slots) {
  auto const threads = arch::blockThreads();
  auto const thread = arch::threadIndex() + threads - first;
  auto const group = threadRange(thread < threads ? thread : thread - threads, threads);
  if (slots < threads) {
    first += roundUp(slots, arch::warpSize);
    if (first >= threads) first -= threads;
  }
  return group;
}

// f(chunk, slot) for this thread's slots: the step's chunks lie end to end, each filled up to whole warps of the
// longest, and the block's threads take slots in turn from `start` on. slotsOf(chunk) tells how many there are.
template <class SlotsOf, class F>
MSCCLPP_DEVICE void forEachSlot(auto const& step, StepStart const& start, SlotsOf&& slotsOf, F&& f) {
  auto const threads = arch::blockThreads();
  auto const filled = start.filled;
  auto const thread = arch::threadIndex();
  std::uint32_t slot = thread < start.thread ? thread + threads - start.thread : thread - start.thread;
  // Else, not behind a return, so that no code is made for the other where the step is known.
  if (step.chunks == 1) {
    for (auto const slots = slotsOf(0); slot < slots; slot += threads) f(0, slot);
  } else {
    if (slot >= std::uint64_t{filled} * static_cast<unsigned>(step.chunks)) return;
    for (int chunk = 0;;) {
      for (; slot >= filled; slot -= filled) ++chunk;
      if (chunk >= step.chunks) return;
      auto const slots = slotsOf(chunk);
      for (; slot < slots; slot += threads) f(chunk, slot);
      while (slot < filled) slot += threads;
    }
  }
}

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
