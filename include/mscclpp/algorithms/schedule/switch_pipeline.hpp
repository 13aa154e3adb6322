// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce through the switch for buffers of any kind, in a pipeline: while one chunk of the input is copied into the
// workspace, the one before is reduced there through the switch, and the one before that is copied out.
//
// The three steps are the work of three groups of threads, a unit of the pipeline; Roles says of which:
//   WarpRoles     warps of one block, so that each block is a unit; blocks have 96 threads or more
//   BlockRoles    blocks, three to a unit; grids have 3 blocks or more
// A unit has two chunks of workspace in turn. It tells the same unit of all ranks, by one store through the switch,
// when it has copied in (phase 0) and reduced its share (phase 1) of a chunk, and itself when it has copied out (phase
// 2). Every chunk is a round of the team, and one meeting ends the call: the chunks are free then.
#pragma once

#include <cstdint>

#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/schedule/switch_reduce.hpp"
#include "mscclpp/algorithms/transport/switch_memory.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// The steps of a chunk, in their order.
enum class PipelineRole : std::uint8_t { copyIn, reduce, copyOut };

struct WarpRoles {
  static constexpr unsigned leastThreads = 96;
  static constexpr unsigned leastBlocks = 1;

  // Units of a grid: its blocks.
  template <BlockSet B>
  MSCCLPP_DEVICE static unsigned units(B const& blocks) {
    return blocks.blockCount();
  }
  // Calls work(group, role, unit) by the threads of the group; threads of an incomplete warp have no work. Reducing
  // takes the fewest: it waits for the switch.
  template <BlockSet B, class Work>
  MSCCLPP_DEVICE static void share(B const& blocks, Work const& work) {
    auto const warps = blocks.block().size() / 32;
    auto const reducing = warps < 16 ? 1u : warps / 8;
    auto const out = (warps - reducing) / 2;
    auto const in = warps - reducing - out;
    auto const warp = blocks.block().rank() / 32;
    auto const unit = blocks.blockRank();
    if (warp < in) return work(warpsOfBlock(0, in, 1), PipelineRole::copyIn, unit);
    if (warp < in + reducing) return work(warpsOfBlock(in, reducing, 2), PipelineRole::reduce, unit);
    if (warp < warps) work(warpsOfBlock(in + reducing, out, 3), PipelineRole::copyOut, unit);
  }
};

struct BlockRoles {
  static constexpr unsigned leastThreads = 1;
  static constexpr unsigned leastBlocks = 3;

  // Units of a grid: a third of its blocks. One or two that are left over have no work.
  template <BlockSet B>
  MSCCLPP_DEVICE static unsigned units(B const& blocks) {
    return blocks.blockCount() / 3;
  }
  template <BlockSet B, class Work>
  MSCCLPP_DEVICE static void share(B const& blocks, Work const& work) {
    auto const count = units(blocks);
    auto const block = blocks.blockRank();
    if (block < 3 * count) work(blocks.block(), static_cast<PipelineRole>(block / count), block % count);
  }
};

template <class Roles>
struct SwitchPipeline {
  static constexpr bool rankOrder = false;
  static constexpr bool fixedRanks = false;
  template <class T, class Op>
  static constexpr bool reduces = switchReduces<T, Op>;
  static constexpr unsigned leastThreads = Roles::leastThreads;
  static constexpr unsigned leastBlocks = Roles::leastBlocks;
  // A unit's chunk is not cut into rows: ranks have shares of it.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t) { return 1; }

  // By all threads of the blocks. Refuses too few threads or blocks for the roles, a team without multicast addresses,
  // and a workspace without stage. A block returns when the same block of every rank has come to its end: a unit waits
  // for the slowest rank twice a chunk and once more there.
  template <StagedTransport Tr, class R, int Ranks, BlockSet B, ElementSource S, class T, class Epilogue>
  MSCCLPP_DEVICE static void run(DeviceTeam const& team, B const& blocks, S const& in, View<T> out,
                                 Epilogue const& epilogue) {
    require(blocks.block().size() >= Roles::leastThreads, team.watch, -1, std::uint64_t(layout::Misuse::blockThreads),
            Roles::leastThreads, blocks.block().size());
    require(blocks.blockCount() >= Roles::leastBlocks, team.watch, -1, std::uint64_t(layout::Misuse::fewBlocks),
            Roles::leastBlocks, blocks.blockCount());
    requireMulticast(team);
    Call<Tr, R, Ranks, S, T, Epilogue> call{team, in, out, epilogue, Roles::units(blocks)};
    require(call.chunk() != 0, team.watch, -1, std::uint64_t(layout::Misuse::workspaceBytes), team.layout.stageSlice,
            128);
    if (in.count == 0) return;
    call.firstEpoch = beginRounds(team, blocks, call.steps() + 1);
    Roles::share(blocks, [&](auto const& group, PipelineRole role, unsigned unit) {
      switch (role) {
        case PipelineRole::copyIn:
          return call.copyIn(group, unit);
        case PipelineRole::reduce:
          return call.reduce(group, unit);
        case PipelineRole::copyOut:
          return call.copyOut(group, unit);
      }
    });
    auto const last = call.firstEpoch + call.steps();
    publishPhase(team, blocks, 0, last);
    commitEpoch(team, blocks, last);
    awaitPhase(team, blocks, 0, last);
  }

 private:
  template <class Tr, class R, int Ranks, ElementSource S, class T, class Epilogue>
  struct Call {
    static constexpr unsigned U = Tr::unroll;
    DeviceTeam const& team;
    S in;
    View<T> out;
    Epilogue const& epilogue;
    unsigned units;
    std::uint64_t firstEpoch = 0;

    // Bytes of a chunk, a multiple of 128.
    MSCCLPP_DEVICE std::uint32_t chunk() const { return team.layout.stageSlice; }
    MSCCLPP_DEVICE std::uint64_t steps() const {
      return ceilDiv<std::uint64_t>(in.bytes(), std::uint64_t{units} * chunk());
    }
    MSCCLPP_DEVICE std::uint64_t firstByte(std::uint64_t step, unsigned unit) const {
      return (step * units + unit) * chunk();
    }
    // Payloads of the unit's chunk; none where the input has ended.
    MSCCLPP_DEVICE std::uint32_t payloads(std::uint64_t step, unsigned unit) const {
      auto const first = firstByte(step, unit);
      auto const left = first < in.bytes() ? minimum<std::uint64_t>(in.bytes() - first, chunk()) : 0;
      return static_cast<std::uint32_t>(ceilDiv<std::uint64_t>(left, 16));
    }
    MSCCLPP_DEVICE std::uint64_t stage(std::uint64_t epoch, unsigned unit) const {
      return team.layout.stage + (epoch % 2 * team.layout.blocks + unit) * team.layout.stageSlice;
    }
    MSCCLPP_DEVICE Payload<4>* ownStage(std::uint64_t epoch, unsigned unit) const {
      return reinterpret_cast<Payload<4>*>(team.workspace(team.rank) + stage(epoch, unit));
    }

    // Returns when all ranks' units, this one included, have come to `epoch` in `phase`.
    template <SyncGroup G>
    MSCCLPP_DEVICE void await(G const& group, unsigned unit, unsigned phase, std::uint64_t epoch) const {
      for (int peer = static_cast<int>(group.rank()); peer < team.size; peer += static_cast<int>(group.size())) {
        awaitSignal(team, phase, unit, peer, epoch);
      }
      syncWhole(group);
    }
    template <SyncGroup G>
    MSCCLPP_DEVICE void awaitCopiedOut(G const& group, unsigned unit, std::uint64_t epoch) const {
      if (group.rank() == 0) awaitSignal(team, 2, unit, team.rank, epoch);
      syncWhole(group);
    }

    template <SyncGroup G>
    MSCCLPP_DEVICE void copyIn(G const& group, unsigned unit) const {
      auto const reader = readerOf<4, 16>(in);
      auto const count = steps();
      for (std::uint64_t step = 0; step < count; ++step) {
        auto const epoch = firstEpoch + step;
        if (step >= 2) awaitCopiedOut(group, unit, epoch - 2);
        auto* const to = ownStage(epoch, unit);
        auto const here = payloads(step, unit);
        auto const window = reader.window(firstByte(step, unit), std::uint64_t{here} * 16);
        for (unsigned at = group.rank(); at < here; at += U * group.size()) {
          Payload<4> held[U];
          MSCCLPP_UNROLL
          for (unsigned u = 0; u < U; ++u) {
            auto const i = at + u * group.size();
            if (i < here) held[u] = reader.read(window, i * 16);
          }
          MSCCLPP_UNROLL
          for (unsigned u = 0; u < U; ++u) {
            auto const i = at + u * group.size();
            if (i < here) to[i] = held[u];
          }
        }
        publishToAll(team, group, unit, 0, epoch);
      }
      // The chunks are the next collective's when this group says that it has finished.
      awaitCopiedOut(group, unit, firstEpoch + count - 1);
    }

    // This rank's share of the unit's chunk, on all ranks.
    struct StagePlan {
      using Element = T;
      Call const& call;
      std::uint64_t place;  // bytes into the workspaces
      std::uint64_t count;
      std::uint64_t index;

      MSCCLPP_DEVICE View<T const> source(int rank) const { return {target(rank), count}; }
      MSCCLPP_DEVICE T* target(int rank) const { return reinterpret_cast<T*>(call.team.workspace(rank) + place); }
      MSCCLPP_DEVICE T const* multicastSource() const { return multicastTarget(); }
      MSCCLPP_DEVICE T* multicastTarget() const { return reinterpret_cast<T*>(call.team.multicast + place); }
      MSCCLPP_DEVICE std::uint64_t firstElement() const { return index; }
    };

    template <SyncGroup G>
    MSCCLPP_DEVICE void reduce(G const& group, unsigned unit) const {
      auto const ranks = static_cast<unsigned>(Ranks != 0 ? Ranks : team.size);
      auto const count = steps();
      for (std::uint64_t step = 0; step < count; ++step) {
        auto const epoch = firstEpoch + step;
        await(group, unit, 0, epoch);
        // In lines, so that no two ranks' stores meet in one.
        auto const all = payloads(step, unit);
        auto const each = static_cast<std::uint32_t>(shareSlots(all, ranks, 8));
        auto const first = minimum(each * static_cast<unsigned>(team.rank), all);
        auto const mine = minimum(each, all - first);
        StagePlan const plan{*this, stage(epoch, unit) + first * 16u, mine * (16 / sizeof(T)),
                             (firstByte(step, unit) + first * 16u) / sizeof(T)};
        impl::reduceThroughSwitch<U, R, Ranks>(team, group, plan, epilogue);
        publishToAll(team, group, unit, 1, epoch);
      }
    }

    template <SyncGroup G>
    MSCCLPP_DEVICE void copyOut(G const& group, unsigned unit) const {
      PayloadWriter<T, 4, 16> const writer(out);
      auto const count = steps();
      for (std::uint64_t step = 0; step < count; ++step) {
        auto const epoch = firstEpoch + step;
        await(group, unit, 1, epoch);
        auto const* const from = ownStage(epoch, unit);
        auto const here = payloads(step, unit);
        auto const window = writer.window(firstByte(step, unit), std::uint64_t{here} * 16);
        for (unsigned at = group.rank(); at < here; at += U * group.size()) {
          Payload<4> held[U];
          MSCCLPP_UNROLL
          for (unsigned u = 0; u < U; ++u) {
            auto const i = at + u * group.size();
            if (i < here) held[u] = from[i];
          }
          MSCCLPP_UNROLL
          for (unsigned u = 0; u < U; ++u) {
            auto const i = at + u * group.size();
            if (i < here) writer.write(window, i * 16, held[u]);
          }
        }
        syncWhole(group);
        if (group.rank() == 0) {
          store<Order::release, Scope::device>(team.signal(team.rank, 2, unit, team.rank), epoch);
        }
      }
    }
  };
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
