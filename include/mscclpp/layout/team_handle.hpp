// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A team as kernels receive it, by value: who takes part, and where each rank's workspace is mapped here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/layout/watch.hpp"
#include "mscclpp/layout/workspace.hpp"

namespace mscclpp::layout {

struct TeamHandle {
  std::int32_t rank;                   // of this process in the team
  std::int32_t size;                   // ranks in the team
  Watch* watch;                        // of this rank
  WorkspaceLayout layout;              // the same on every rank
  std::byte* multicast;                // everybody's workspace at once, for multicast accesses; null without such
  std::byte* workspaces[maxTeamSize];  // by rank; [rank] is the own one, entries from `size` on are null
};

}  // namespace mscclpp::layout
