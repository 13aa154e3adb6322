// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What execute() keeps for a communicator between calls, and its bounds.
//
//   teams      one per stream, with a workspace as large as the calls so far asked for
//   windows    one per allocation that holds buffers of `symmetric` calls: where the peers' lie
//   users'     contexts of native algorithms, by their keys
//
// Making one is collective, and so is the first use of a communicator by anything of this library. Beyond a bound the
// least recently used one goes, once the devices of all ranks have done their work; one that a captured graph may use
// stays until releaseContexts() or the communicator's end, and so does everything while a stream is captured. A window
// whose allocation is gone goes when the next one is made.
//
// A team serves one kernel at a time: a graph counts as work of the stream that it was captured from, wherever it runs.
//
// Also how many blocks the library's own kernels may have, for programs in which others run beside them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/host/communicator.hpp"

namespace mscclpp {

// The bounds of one communicator; these until setContextLimits() is called.
struct ContextLimits {
  std::size_t teams = 32;
  std::size_t windows = 64;
  std::size_t native = 64;
  std::uint32_t blocks = 0;  // of a grid that the library chooses, as far as its algorithm allows; 0: as are faster

  friend bool operator==(ContextLimits const&, ContextLimits const&) = default;
};

// What this rank keeps for one communicator at the moment.
struct ContextCounts {
  std::size_t teams = 0;
  std::size_t retiredTeams = 0;  // replaced by larger ones, kept for graphs
  std::size_t workspaceBytes = 0;
  std::size_t windows = 0;
  std::size_t native = 0;

  friend bool operator==(ContextCounts const&, ContextCounts const&) = default;
};

// Set the same on all ranks, before the calls for which it matters; `blocks` before the first use, and the fewest of
// any rank hold. Throws invalidUsage for fewer than 1 team, 2 windows and 1 native context, and for blocks that come
// late.
void setContextLimits(Communicator const& communicator, ContextLimits const& limits);
ContextCounts contextCounts(Communicator const& communicator);

// Collective: frees all of it, when the work of all ranks' devices is done. Graphs captured so far must not run again.
// Throws invalidUsage on all ranks while one of them captures. After a failure ranks start anew with it where they have
// made different numbers of calls since.
void releaseContexts(Communicator const& communicator);

}  // namespace mscclpp
