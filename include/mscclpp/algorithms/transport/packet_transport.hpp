// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transport by packets: each payload carries its flag, so a phase needs neither fence nor signal. Lowest latency; costs
// link bandwidth (LL8 and LL16 half of it, LL128 a sixteenth).
//
// `Unroll` payloads per thread and round are in flight together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/epoch.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/packet_sweep.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <PacketFormat P, unsigned Unroll = 1>
struct PacketTransport : P {
  using Format = P;
  static constexpr unsigned unroll = Unroll;
  static constexpr bool signals = false;
  static constexpr unsigned batch = Unroll;                                      // payloads folded together
  static constexpr unsigned slotData = P::slotsPerGroup == 8 ? 15 : P::granule;  // bytes of data in a slot, on average
  static constexpr double onWire = double{P::slotBytes} / slotData;
  static constexpr LaunchPolicy launch{
      .perThread = std::uint64_t{slotData} * Unroll, .threads = 128, .largestBlocks = 288, .crowdedThreads = 512};

  // For the host: with this much each block takes a whole tile in one round.
  static constexpr layout::WorkspaceRequirement requirement(std::uint32_t blocks, std::uint32_t threads,
                                                            std::uint32_t rows) {
    auto const slots = std::uint64_t{(threads + 31) / 32 * 32} * Unroll;
    auto const bytes = rows * slots * P::slotBytes;
    return P::region == PacketRegion::lines ? layout::WorkspaceRequirement{blocks, 0, bytes, 0}
                                            : layout::WorkspaceRequirement{blocks, bytes, 0, 0};
  }

  // By all threads of the blocks, alike. Refuses a region with less than 128 bytes of a block for each of `rows`; of
  // LL128 also links that tear lines, and blocks of less than a warp.
  template <BlockSet B>
  class Session {
   public:
    using Received = Payload<P::words>;

    MSCCLPP_DEVICE Session(DeviceTeam const& team, B const& blocks, unsigned rows)
        : team_(team), blocks_(blocks), heard_(team.epochs(), blocks.blockRank()) {
      rowSlots_ = slice() / rows / 128 * (128 / P::slotBytes);
      auto const region = P::region == PacketRegion::lines ? team.layout.lines : team.layout.packets;
      evenBase_ = region + std::uint64_t{blocks.blockRank()} * slice();
      require(rowSlots_ != 0, team.watch, -1, std::uint64_t(layout::Misuse::workspaceBytes), slice(),
              std::uint64_t{128} * rows);
      require(!P::wholeWarp || team.layout.wholeLines != 0, team.watch, -1, std::uint64_t(layout::Misuse::tornLines), 1,
              0);
      require(!P::wholeWarp || blocks.block().size() >= 32, team.watch, -1, std::uint64_t(layout::Misuse::blockThreads),
              32, blocks.block().size());
    }

    // Of this block, in either half of the region.
    MSCCLPP_DEVICE std::uint32_t rowSlots() const { return rowSlots_; }
    // Threads of the block that move payloads; LL128 leaves an incomplete last warp out.
    MSCCLPP_DEVICE std::uint32_t threads() const {
      auto const all = blocks_.block().size();
      return P::wholeWarp ? all / 32 * 32 : all;
    }

    // Waits for the kernel ahead and for the block's threads, and begins to load the epoch. Refuses a larger grid than
    // the workspace is made for.
    MSCCLPP_DEVICE void open() {
      auto const read = beginReadEpoch(team_, blocks_);
      epoch_ = read.rounds;
      astray_ = read.astray;
    }

    // Here the epoch has to be there; it makes the flag, and chooses the half. Rounds that are astray are refused in
    // exchange(): a branch here would delay the packets.
    MSCCLPP_DEVICE void beginRound() {
      ++epoch_;
      auto const unheard = astray_ == 0 ? heard_.begin(epoch_, team_.rank, team_.size) : -1;
      require(unheard < 0, team_.watch, unheard, std::uint64_t(layout::Misuse::unheardPeer), 0, epoch_ - 1);
      flag_ = packetFlag(epoch_ + astray_);
      base_ = evenBase_ + std::uint64_t{static_cast<std::uint32_t>(epoch_ % 2) * team_.layout.blocks} * slice();
    }

    // A relaxed store, which orders nothing else. LL128: by whole warps, those without data too.
    MSCCLPP_DEVICE void put(std::byte* to, unsigned row, unsigned slot, Payload<P::words> const& payload,
                            bool active) const {
      P::store(to + offset(row, slot), payload, flag_, active);
    }

    // Into everybody's slot, the own included; of a team with multicast addresses.
    MSCCLPP_DEVICE void putToAll(unsigned row, unsigned slot, Payload<P::words> const& payload,
                                 bool active) const requires MulticastPacketFormat<P> {
      if (active) P::storeMulticast(team_.multicast + offset(row, slot), payload, flag_);
    }

    // Waits for nobody, but in the rare round that clears old packets: then for the same block of every peer.
    MSCCLPP_DEVICE void exchange(unsigned phase) const {
      requireTogether(team_.watch, astray_);
      if (phase == 0) sweep();
    }

    // Polls until all active slots have this round's flag. That orders nothing but the payloads themselves. LL128: by
    // whole warps.
    template <unsigned Count>
    MSCCLPP_DEVICE void receive(Source const (&sources)[Count], Payload<P::words> (&values)[Count]) const {
      arch::leaveUnset(values);
      auto const* const own = team_.workspace(team_.rank);
      std::byte const* slots[Count];
      bool active[Count] = {};
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < Count; ++i) {
        slots[i] = own + offset(sources[i].row, sources[i].slot);
        active[i] = sources[i].active;
        if (active[i]) heard_.add(sources[i].peer);
      }
      awaitPackets<P>(team_.watch, slots, active, flag_, values, [&](unsigned i) -> WaitFor {
        return {layout::WaitKind::packet, sources[i].peer, sources[i].slot, flag_};
      });
    }

    // For those who store into the peers' buffers besides, since packets order nothing: this block has come to `phase`,
    // 1 or 2, of this round, and the same block of every peer has.
    MSCCLPP_DEVICE void publish(unsigned phase) const {
      requireTogether(team_.watch, astray_);
      publishPhase(team_, blocks_, phase, epoch_);
    }
    MSCCLPP_DEVICE void await(unsigned phase) const { awaitPhase(team_, blocks_, phase, epoch_); }

    // A barrier of the block, and a store. endRound(): a barrier, so that no thread puts for the next round while one
    // still reads of this.
    MSCCLPP_DEVICE void commit() const { commitEpoch(team_, blocks_, epoch_); }
    MSCCLPP_DEVICE void endRound() const {
      heard_.end();
      blocks_.block().sync();
    }

   private:
    // In a round for it, when this rank's part is on its way: the peers wait for each other here, so that none has gone
    // on and writes the half of the next round.
    MSCCLPP_DEVICE void sweep() const {
      if (!isDue(layout::sweepsPackets(roundOf(flag_)))) return;
      auto const next = static_cast<unsigned>(epoch_ + 1) % 2;
      clearPackets(team_, blocks_, next, next);
      publishPhase(team_, blocks_, 0, epoch_);
      awaitPhase(team_, blocks_, 0, epoch_);
    }
    MSCCLPP_DEVICE std::uint32_t slice() const {
      return P::region == PacketRegion::lines ? team_.layout.lineSlice : team_.layout.packetSlice;
    }
    MSCCLPP_DEVICE std::uint64_t offset(unsigned row, unsigned slot) const {
      return base_ + (row * rowSlots_ + slot) * P::slotBytes;
    }

    DeviceTeam const& team_;
    B blocks_;
    [[no_unique_address]] mutable arch::HeardPeers heard_;
    std::uint64_t epoch_ = 0;
    std::uint64_t astray_ = 0;
    std::uint64_t evenBase_;  // of this block's slots in the workspaces, in even rounds
    std::uint64_t base_ = 0;  // in this one
    std::uint32_t rowSlots_;
    std::uint32_t flag_ = 0;
  };
};

static_assert(SessionTransport<PacketTransport<LL8>> && SessionTransport<PacketTransport<LL16>> &&
              SessionTransport<PacketTransport<LL128>>);

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
