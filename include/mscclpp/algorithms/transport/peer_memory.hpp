// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transports without a copy: data goes straight between the buffers of the ranks, which lie in symmetric memory. Each
// collective begins and ends with a signal to every peer, and nothing is unpacked. For messages that are larger than a
// few hundred KiB.
//
//   PeerMemory<Unroll>            by loads and stores; Unroll accesses of 16 bytes a thread are in flight together
//   BulkMemory<Chunk, Stages>     by bulk copies (device/bulk_copy.hpp): one thread a block keeps a link busy, so 8 to
//                                 16 blocks do. Takes Stages chunks of `Chunk` bytes of dynamic shared memory
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/epoch.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <unsigned Unroll = 4>
struct PeerMemory {
  static constexpr unsigned unroll = Unroll;
  static constexpr unsigned granule = 16;
  static constexpr std::size_t sharedBytes = 0;
  static constexpr LaunchPolicy launch{.perThread = 16 * Unroll, .largestThreads = 512};

  // Signals only: no data lies in the workspace.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t, std::uint32_t) {
    return {blocks, 0, 0, 0};
  }
};

template <unsigned Chunk = 32768, unsigned Stages = 6>
struct BulkMemory {
  static_assert(Chunk % 128 == 0 && Stages >= 3);
  static constexpr unsigned chunk = Chunk;
  static constexpr unsigned stages = Stages;
  static constexpr unsigned granule = 16;
  static constexpr std::size_t sharedBytes = std::size_t{Chunk} * Stages;
  // One thread of a block works; the others help with ragged ends.
  static constexpr LaunchPolicy launch{
      .perThread = Chunk / 32, .threads = 32, .largestThreads = 32, .largestBlocks = 32};

  // As of PeerMemory.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t, std::uint32_t) {
    return {blocks, 0, 0, 0};
  }
};

namespace impl {
template <class T>
inline constexpr bool isBulkMemory = false;
template <unsigned Chunk, unsigned Stages>
inline constexpr bool isBulkMemory<BulkMemory<Chunk, Stages>> = true;
}  // namespace impl

// Moves data between the ranks' own buffers, without a session.
template <class T>
concept DirectTransport = requires {
  { T::sharedBytes } -> std::convertible_to<std::size_t>;
  { T::requirement(1u, 1u, 1u) } -> std::same_as<layout::WorkspaceRequirement>;
};
static_assert(DirectTransport<PeerMemory<>> && DirectTransport<BulkMemory<>>);

// The frame of a direct collective: between constructor and finish() the peers' buffers may be read and written. A
// round of the team. All threads of the blocks; block b meets block b of every peer.
template <BlockSet B>
class DirectRound {
 public:
  MSCCLPP_DEVICE DirectRound(DeviceTeam const& team, B const& blocks)
      : team_(team), blocks_(blocks), epoch_(beginRounds(team, blocks, 1)) {
    // What came before this kernel here is over: peers may write this rank's buffers.
    publishPhase(team_, blocks_, 0, epoch_);
    commitEpoch(team_, blocks_, epoch_);
    awaitPhase(team_, blocks_, 0, epoch_);
  }

  // On return what the same block of every peer has done is done, and visible to this block.
  MSCCLPP_DEVICE void finish() const {
    publishPhase(team_, blocks_, 1, epoch_);
    awaitPhase(team_, blocks_, 1, epoch_);
  }

 private:
  DeviceTeam const& team_;
  B blocks_;
  std::uint64_t epoch_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
