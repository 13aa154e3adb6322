// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counters of arrivals for tiles, on each of a group of ranks, that kernels of all of them count up and wait for
// (device/tiles/tile_flags.hpp).
//
//   TileFlags flags(communicator, {.tiles = grid.count(), .blocks = 264});
//   launch(stream, shape, Kernel{}, ..., flags.deviceHandle());      // DeviceTileFlags const& in the kernel
//
// Making them is collective over the ranks, which must ask for the same. They serve one kernel at a time; destroy them
// only when the kernels of all ranks that use them have ended. They lie in memory of their own, or in a part of an
// arena (host/fused/symmetric_arena.hpp) of layout::TileFlagsLayout::make(ranks, size).total bytes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/layout/tile_flags_handle.hpp"

namespace mscclpp {

class SymmetricArena;

class TileFlags {
 public:
  // `ranks`: of the communicator, in the same order on each, as in a Team. Empty: all. Throws invalidUsage on every
  // member where the members ask for different sizes or name different ranks.
  TileFlags(Communicator const& communicator, layout::TileFlagsSize const& size, std::vector<int> ranks = {});
  // In the next part of the arena, for its ranks.
  TileFlags(SymmetricArena& arena, layout::TileFlagsSize const& size);

  // This rank's place among the size() ranks that share the flags.
  int rank() const noexcept { return handle_.rank; }
  int size() const noexcept { return handle_.size; }
  layout::TileFlagsHandle const& deviceHandle() const noexcept { return handle_; }

 private:
  // `arena` null: in memory of their own.
  TileFlags(Communicator const& communicator, layout::TileFlagsSize const& size, std::vector<int> ranks,
            SymmetricArena* arena);

  std::optional<MemoryWindow> window_;
  std::shared_ptr<void> guard_;  // of the counters of rounds
  layout::TileFlagsHandle handle_{};
};

}  // namespace mscclpp
