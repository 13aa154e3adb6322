// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transport by plain stores: data goes to the peer's stage whole, then one signal per block and phase. Full link
// bandwidth; each phase costs a fence, a signal and two barriers of the block.
//
// Several blocks per multiprocessor hide those costs behind each other's stores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/epoch.hpp"
#include "mscclpp/device/packet_sweep.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <unsigned Unroll = 8>
struct MemoryTransport {
  static constexpr unsigned words = 4;
  static constexpr unsigned slotBytes = 16;
  static constexpr unsigned granule = 16;
  static constexpr unsigned slotsPerGroup = 1;
  static constexpr unsigned unroll = Unroll;
  static constexpr bool signals = true;  // exchange() tells that stores before it have arrived, wherever
  static constexpr unsigned batch = Unroll % 2 == 0 ? 2 : 1;  // payloads folded together; bounded by registers
  // Unlike packets, waiting for a signal keeps a multiprocessor busy, so a second wave of blocks costs as much as the
  // first: no more than are resident together on 132 multiprocessors. 32 blocks of 512 threads take 0.8 of the time of
  // 32 of 256 for 128 MiB among 4 H100.
  static constexpr LaunchPolicy launch{.perThread = slotBytes * Unroll, .largestBlocks = 264, .crowdedThreads = 512};

  // Where a slot's data begins in a run of slots, and how many bytes it has; how many slots hold so many bytes.
  template <class U>
  MSCCLPP_DEVICE static constexpr U dataOffset(U slot) {
    return slot * 16;
  }
  MSCCLPP_DEVICE static constexpr unsigned dataBytes(std::uint32_t) { return 16; }
  MSCCLPP_HOST_DEVICE static constexpr std::uint64_t slotsFor(std::uint64_t bytes) { return (bytes + 15) / 16; }

  // With this much each block takes a whole tile in one round; with less it takes more rounds.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t threads,
                                                            std::uint32_t rows) {
    return {blocks, 0, 0, std::uint64_t{rows} * threads * Unroll * slotBytes};
  }

  // By all threads of the blocks, alike. Refuses a stage with less than 128 bytes of a block for each of `rows`.
  template <BlockSet B>
  class Session {
   public:
    MSCCLPP_DEVICE Session(DeviceTeam const& team, B const& blocks, unsigned rows) : team_(team), blocks_(blocks) {
      rowSlots_ = team.layout.stageSlice / rows / 128 * (128 / slotBytes);
      evenBase_ = team.layout.stage + std::uint64_t{blocks.blockRank()} * team.layout.stageSlice;
      require(rowSlots_ != 0, team.watch, -1, std::uint64_t(layout::Misuse::workspaceBytes), team.layout.stageSlice,
              std::uint64_t{128} * rows);
    }

    // All threads of the block move payloads.
    MSCCLPP_DEVICE std::uint32_t rowSlots() const { return rowSlots_; }
    MSCCLPP_DEVICE std::uint32_t threads() const { return blocks_.block().size(); }

    // Waits for the kernel ahead and for the block's threads, and begins to load the epoch. Refuses a larger grid than
    // the workspace is made for.
    MSCCLPP_DEVICE void open() {
      auto const read = beginReadEpoch(team_, blocks_);
      epoch_ = read.rounds;
      astray_ = read.astray;
    }

    // Here the epoch has to be there. Goes over to the other half of the stage; refuses rounds that are astray.
    MSCCLPP_DEVICE void beginRound() {
      requireTogether(team_.watch, astray_);
      ++epoch_;
      base_ = evenBase_ +
              std::uint64_t{static_cast<std::uint32_t>(epoch_ % 2) * team_.layout.blocks} * team_.layout.stageSlice;
    }

    // A plain store: it has come when the peer returns from the next exchange().
    MSCCLPP_DEVICE void put(std::byte* to, unsigned row, unsigned slot, Payload<4> const& payload, bool active) const {
      if (active) *at(to, row, slot) = payload;
    }

    MSCCLPP_DEVICE void exchange(unsigned phase) const {
      if (phase == 0) sweepBetween(team_, blocks_, epoch_, epoch_);
      publishPhase(team_, blocks_, phase, epoch_);
      awaitPhase(team_, blocks_, phase, epoch_);
    }

    // Plain loads, of what came ahead of the last exchange(); they wait for nothing.
    template <unsigned Count>
    MSCCLPP_DEVICE void receive(Source const (&sources)[Count], Payload<4> (&values)[Count]) const {
      arch::leaveUnset(values);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < Count; ++i) {
        if (sources[i].active) values[i] = *at(team_.workspace(team_.rank), sources[i].row, sources[i].slot);
      }
    }

    // A barrier of the block, and a store.
    MSCCLPP_DEVICE void commit() const { commitEpoch(team_, blocks_, epoch_); }
    // The barrier before the next signal is enough.
    MSCCLPP_DEVICE void endRound() const {}

   private:
    MSCCLPP_DEVICE Payload<4>* at(std::byte* workspace, unsigned row, unsigned slot) const {
      return reinterpret_cast<Payload<4>*>(workspace + base_) + (row * rowSlots_ + slot);
    }

    DeviceTeam const& team_;
    B blocks_;
    std::uint64_t epoch_ = 0;
    std::uint64_t astray_ = 0;
    std::uint64_t evenBase_;  // of this block's stage in the workspaces, in even rounds
    std::uint64_t base_ = 0;  // in this one
    std::uint32_t rowSlots_;
  };
};

static_assert(SessionTransport<MemoryTransport<>>);

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
