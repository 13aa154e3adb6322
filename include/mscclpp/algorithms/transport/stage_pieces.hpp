// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transport of schedules that send from neighbour to neighbour, each rank adding its own part to what comes: pieces in
// the next rank's stage, of at most `Piece` bytes. Unroll accesses of 16 bytes a thread are in flight together.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/vector.hpp"
#include "mscclpp/layout/workspace.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <unsigned Unroll = 4, unsigned Piece = 65536>
struct StagePieces {
  static_assert(Piece != 0 && Piece % 128 == 0);
  static constexpr unsigned unroll = Unroll;
  static constexpr unsigned piece = Piece;
  static constexpr unsigned granule = 16;
  static constexpr LaunchPolicy launch{.perThread = 16 * Unroll, .largestThreads = 512};

  // `rows`: pieces that may lie in a block's stage.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t, std::uint32_t rows) {
    return {blocks, 0, 0, std::uint64_t{rows} * Piece};
  }
};

// `sharedBytes` would make it a DirectTransport, with which schedules store into buffers and not into stages.
template <class T>
concept StagePieceTransport = requires {
  { T::piece } -> std::convertible_to<unsigned>;
  { T::unroll } -> std::convertible_to<unsigned>;
  { T::requirement(1u, 1u, 1u) } -> std::same_as<layout::WorkspaceRequirement>;
}
&&!requires { T::sharedBytes; };
static_assert(StagePieceTransport<StagePieces<>>);

// emit(offset, totals) for this thread's payloads of a piece: this rank's part of it, behind what came, if any did,
// which lies at the begin of a slot of the stage.
template <unsigned Unroll, class R, SyncGroup G, ElementSource S, class Emit>
MSCCLPP_DEVICE void addToPiece(G const& group, S const& part, Payload<4> const* come, Emit const& emit) {
  auto const bytes = static_cast<std::uint32_t>(part.bytes());
  auto const reader = readerOf<4, 16>(part);
  auto const window = reader.window(0);
  auto const step = group.size() * 16;
  for (std::uint32_t from = group.rank() * 16; from < bytes; from += Unroll * step) {
    Payload<4> own[Unroll], others[Unroll];
    MSCCLPP_UNROLL
    for (unsigned u = 0; u < Unroll; ++u) {
      auto const offset = from + u * step;
      if (offset >= bytes) continue;
      own[u] = reader.read(window, offset);
      if (come != nullptr) others[u] = come[offset / 16];
    }
    MSCCLPP_UNROLL
    for (unsigned u = 0; u < Unroll; ++u) {
      auto const offset = from + u * step;
      if (offset >= bytes) continue;
      auto totals = R::widen(own[u]);
      if (come != nullptr) totals = map(R::widen(others[u]), totals, typename R::Operation{});
      emit(offset, totals);
    }
  }
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
