// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ranks that run collectives together, with a workspace on each that all of them map.
//
// Making one is collective over its ranks, which must ask for the same. Kernels get deviceHandle() by value. The
// workspace belongs to the kernels from then on; one team serves one collective at a time. It lies in memory of its
// own, or in a part of an arena (host/fused/symmetric_arena.hpp) of layout::WorkspaceLayout::make(ranks, need).total
// bytes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/multicast.hpp"
#include "mscclpp/layout/team_handle.hpp"
#include "mscclpp/layout/workspace.hpp"

namespace mscclpp {

class SymmetricArena;

class Team {
 public:
  // `ranks`: of the communicator, in the same order on each; this rank's place is its rank in the team. Empty: all.
  // Throws invalidUsage on every member where the members ask for different workspaces or name different ranks.
  Team(Communicator const& communicator, layout::WorkspaceRequirement const& requirement, std::vector<int> ranks = {});
  // In the next part of the arena, for its ranks.
  Team(SymmetricArena& arena, layout::WorkspaceRequirement const& requirement);

  int rank() const noexcept { return handle_.rank; }
  int size() const noexcept { return handle_.size; }
  layout::TeamHandle const& deviceHandle() const noexcept { return handle_; }

 private:
  // `arena` null: in memory of its own.
  Team(Communicator const& communicator, layout::WorkspaceRequirement const& requirement, std::vector<int> ranks,
       SymmetricArena* arena);

  std::shared_ptr<void> part_;  // of the arena
  DeviceMemory workspace_;
  std::vector<RegisteredMemory> mapped_;
  std::shared_ptr<void> guard_;  // of the counters; keeps the communicator's watch
  layout::TeamHandle handle_{};
  std::optional<MulticastWindow> multicast_;
};

}  // namespace mscclpp
