// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transport of schedules that store to a neighbour piece by piece: the peers' own symmetric buffers, as PeerMemory, and
// the most bytes that a block moves between two signals. Longer pieces cost fewer signals, shorter ones let the next
// rank begin sooner.
#pragma once

#include "mscclpp/algorithms/transport/peer_memory.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <unsigned Unroll = 4, unsigned Piece = 65536>
struct PeerPieces : PeerMemory<Unroll> {
  static_assert(Piece != 0 && Piece % 128 == 0);
  static constexpr unsigned piece = Piece;
};
static_assert(DirectTransport<PeerPieces<>>);

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
