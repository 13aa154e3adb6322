// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts for CUTLASS 3 and 4's kernels for Hopper, which become halves of fused kernels with them. CUTLASS is used as it
// is, and is the user's to bring; nothing else of this library includes this. nvcc, C++20, --expt-relaxed-constexpr.
//
//   using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>,
//       mscclpp::Gated<Mainloop>,                  gated.hpp: waits for the rows of A that peers send
//       mscclpp::PeerEpilogue<Epilogue, Ranks>,    peer_epilogue.hpp: each tile of D into its owner's slot, and tells
//       mscclpp::PeersFirst<>>;                    tile_scheduler.hpp: any TileOrder in place of CUTLASS's scheduler
//
// Each can be used without the others. All three deal out rows as a TileGrid does, and need shards of whole clusters of
// tiles. What does not fit is refused by an Error of invalidUsage, in words, when CUTLASS makes its parameters
// (Gemm::initialize); can_implement() is false for the same.
//
// Rounds. CUTLASS's kernel has no place for the begin and the end of a round of tile flags, so it joins one:
//   - all kernels of a round come behind all of the round before, and between those a rank does nothing with the flags;
//   - a kernel of one's own ends the round, behind CUTLASS's: a fold of the slots by the end() that it has anyway, else
//     EndRound;
//   - a kernel that CUTLASS's waits for in Gated runs beside it, or ahead. It begins the round and does not end it.
// device/tiles/joined_round.hpp has the rest.
//
// Include this ahead of CUTLASS's own headers: one of them includes cudaTypedefs.h inside of its namespace, and whoever
// needs that afterwards (launch/launch.hpp) does not find it.
#pragma once

#include <cudaTypedefs.h>

#include "mscclpp/cutlass/gated.hpp"
#include "mscclpp/cutlass/peer_epilogue.hpp"
#include "mscclpp/cutlass/tile_scheduler.hpp"
