// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory in which the tokens of a group of ranks travel to the ranks of their experts and back, and the flags that tell
// of them (algorithms/experts/dispatch.hpp, combine.hpp).
//
//   Experts experts(communicator, {.experts = 256, .topK = 8, .tokens = 128, .hidden = 7168, .blocks = 132});
//   launch(stream, shape, Kernel{}, ..., experts.deviceHandle());      // DeviceExperts const& in the kernel
//
// Making it is collective over the ranks, which must ask for the same. It serves one kernel at a time, and one batch of
// tokens from its dispatch to its combine: make two for two batches on their way. Destroy it only when the kernels of
// all ranks that use it have ended. bytes() is what it takes on each rank: a row, its scales and 272 bytes for each
// token of each rank, and `topK` or as many rows as there are ranks, whichever is less, for each own token; as packets
// 128 bytes for each 120 of a row. That memory
// and its flags are its own, or two parts of an arena (host/fused/symmetric_arena.hpp), of room() bytes together.
//
// Ranks that have failed. The caller says which, by a table that is the same on all that are left, and that each kernel
// reads when it begins, so captured graphs see what it holds then. Tokens are not sent to experts of those; which, and
// how many, a Routing tells. Nothing waits for them and nothing is written to them: counts, rows and parts of theirs
// are as if there were none. Between a dispatch and its combine the table may grow: what such ranks have sent stays
// placed, and their parts of sums are missing. It never shrinks: rounds of a rank that was left out are behind, so make
// new Experts once it is back. It must have stopped: its kernels give up in their time, and what gives up leads the
// others astray, too (layout/round_counter.hpp). Only as packets, of which what a rank leaves behind is never taken for
// another's. A process that dies ends the communicator (Communicator::fault()); then go on with shrink().
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "mscclpp/layout/experts_handle.hpp"

namespace mscclpp {

class SymmetricArena;

class Experts {
 public:
  // `ranks`: of the communicator, in the same order on each, as in a Team. Empty: all. Throws invalidUsage on every
  // member where the limits are past what can be, or differ between members.
  Experts(Communicator const& communicator, layout::ExpertLimits const& limits, std::vector<int> ranks = {});
  // In the next parts of the arena, for its ranks.
  Experts(SymmetricArena& arena, layout::ExpertLimits const& limits);
  // What that takes of an arena of so many ranks. Throws invalidUsage where the limits are past what can be.
  static std::size_t room(int ranks, layout::ExpertLimits const& limits);

  int rank() const noexcept { return handle_.window.rank; }
  int size() const noexcept { return handle_.window.size; }
  layout::ExpertLimits const& limits() const noexcept { return handle_.layout.limits; }
  std::size_t bytes() const noexcept { return handle_.layout.total; }
  layout::ExpertsHandle const& deviceHandle() const noexcept { return handle_; }
  // For kernels that go on without ranks that have failed: `failed` is memory of this device, a number for each rank,
  // not 0 where it has failed, which each kernel reads anew. Throws invalidUsage where rows go by memory.
  layout::ExpertsHandle deviceHandle(std::int32_t const* failed) const;

 private:
  // `arena` null: in memory of its own.
  Experts(Communicator const& communicator, layout::ExpertLimits const& limits, std::vector<int> ranks,
          SymmetricArena* arena);

  std::optional<MemoryWindow> window_;
  std::optional<TileFlags> flags_;
  layout::ExpertsHandle handle_{};
};

}  // namespace mscclpp
