// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Symmetric memory as kernels receive it, by value: the same bytes on every rank of a team, and where each rank's are
// mapped here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/config.hpp"

namespace mscclpp::layout {

struct WindowHandle {
  std::int32_t rank;              // of this process in the team
  std::int32_t size;              // ranks in the team
  std::uint64_t bytes;            // the same on every rank
  std::byte* multicast;           // everybody's at once, for multicast accesses; null where there is no such address
  std::byte* bases[maxTeamSize];  // by rank; [rank] is the own memory, entries from `size` on are null
};

}  // namespace mscclpp::layout
