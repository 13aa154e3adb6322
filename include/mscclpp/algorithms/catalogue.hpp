// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compositions of every collective that are compiled into programs which choose among them at run time, with names,
// and the launch that suits each. A kernel of your own may use any other.
//
//   ll8 ll16 ll128        one exchange of packets
//   memory memory_wide    one exchange through the stage, with more or fewer payloads a thread
//   push push_bulk        straight into the peers' outputs, which are symmetric, by stores or bulk copies
//   pull pull_wide        straight from the peers' inputs, which are symmetric
//   chain                 from rank to rank in pieces: broadcast into symmetric outputs, reduce through the stage
//   push (of a reduce)    contributions through the stage, results straight into the root's output, which is symmetric
//   nvls_packet           packets that the switch hands to all
//   nvls nvls_zero_copy   the switch reads and writes symmetric buffers
//   nvls_warp_pipeline nvls_block_pipeline   the switch reduces in the workspaces, while other threads copy
#pragma once

#include <algorithm>
#include <cstdint>

#include "mscclpp/algorithms/core/composition.hpp"
#include "mscclpp/algorithms/kernels.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// All-gather, all-to-all, broadcast, gather, scatter.
using MoveCompositions = CompositionList<
    Composition<"ll8", OneExchange, PacketTransport<LL8>>, Composition<"ll16", OneExchange, PacketTransport<LL16>>,
    Composition<"ll128", OneExchange, PacketTransport<LL128>>, Composition<"memory", OneExchange, MemoryTransport<4>>,
    Composition<"push", Push, PeerMemory<4>>, Composition<"push_bulk", Push, BulkMemory<>>>;

// Reduce-scatter and reduce.
using ReduceCompositions = CompositionList<
    Composition<"ll8", OneExchange, PacketTransport<LL8>>, Composition<"ll16", OneExchange, PacketTransport<LL16>>,
    Composition<"ll128", OneExchange, PacketTransport<LL128>>, Composition<"memory", OneExchange, MemoryTransport<4>>,
    Composition<"memory_wide", OneExchange, MemoryTransport<8>>, Composition<"pull", Pull, PeerMemory<1>>,
    Composition<"pull_wide", Pull, PeerMemory<2>>>;

// Of one collective only.
using BroadcastOnlyCompositions = CompositionList<Composition<"chain", Chain, PeerPieces<>>>;
using ReduceOnlyCompositions =
    CompositionList<Composition<"push", TwoShotPush, MemoryTransport<8>>, Composition<"chain", Chain, StagePieces<>>>;

// All-reduce without copies; those with copies are in tuning.hpp.
using AllReduceDirectCompositions =
    CompositionList<Composition<"twoshot_push", TwoShotPush, MemoryTransport<4>>,
                    Composition<"twoshot_push_wide", TwoShotPush, MemoryTransport<8>>,
                    Composition<"pull", Pull, PeerMemory<1>>, Composition<"pull_wide", Pull, PeerMemory<2>>>;

// Through the switch, for devices that have one. All-gather and broadcast; all-to-all and the like send nobody the
// same.
using SwitchMoveCompositions = CompositionList<Composition<"nvls_packet", OneExchange, SwitchPackets<LL8>>,
                                               Composition<"nvls", Switch, SwitchMemory<4>>>;
// Reduced by the ranks, so by any operation.
using SwitchPacketAllReduce = Composition<"nvls_packet", OneShot, SwitchPackets<LL8>>;
// Reduced by the switch, where it can.
using SwitchAllReduceCompositions =
    CompositionList<Composition<"nvls_zero_copy", Switch, SwitchMemory<4>>,
                    Composition<"nvls_warp_pipeline", SwitchPipeline<WarpRoles>, SwitchStage<4>>,
                    Composition<"nvls_block_pipeline", SwitchPipeline<BlockRoles>, SwitchStage<4>>>;
using SwitchReduceScatter = Composition<"nvls", Switch, SwitchMemory<4>>;

// Whether it combines contributions in rank order and rounds once, so that bits depend on nothing else. From neighbour
// to neighbour the order depends on root or share, and sums are rounded on each link; a switch has an order of its own.
template <class Schedule>
inline constexpr bool combinesInRankOrder = true;
template <>
inline constexpr bool combinesInRankOrder<Chain> = false;
template <>
inline constexpr bool combinesInRankOrder<Ring> = false;
template <>
inline constexpr bool combinesInRankOrder<Switch> = false;
template <class Roles>
inline constexpr bool combinesInRankOrder<SwitchPipeline<Roles>> = false;

namespace impl {

// Bytes that a thread moves at a time, threads of a block, and how many blocks are of use.
template <class Tr>
struct LaunchHabit;
template <PacketFormat P, unsigned Unroll>
struct LaunchHabit<PacketTransport<P, Unroll>> {
  static constexpr std::uint64_t perThread = std::uint64_t{P::slotsPerGroup == 8 ? 15u : P::granule} * Unroll;
  static constexpr std::uint32_t threads = 128;
  static constexpr std::uint32_t largestThreads = 256;
  static constexpr std::uint32_t largestBlocks = 288;
};
// Unlike packets, waiting for a signal keeps a multiprocessor busy, so a second wave of blocks costs as much as the
// first: no more than are resident together on 132 multiprocessors.
template <unsigned Unroll>
struct LaunchHabit<MemoryTransport<Unroll>> {
  static constexpr std::uint64_t perThread = 16 * Unroll;
  static constexpr std::uint32_t threads = 256;
  static constexpr std::uint32_t largestThreads = 256;
  static constexpr std::uint32_t largestBlocks = 264;
};
template <unsigned Unroll>
struct LaunchHabit<PeerMemory<Unroll>> {
  static constexpr std::uint64_t perThread = 16 * Unroll;
  static constexpr std::uint32_t threads = 256;
  static constexpr std::uint32_t largestThreads = 512;
  static constexpr std::uint32_t largestBlocks = 132;
};
template <unsigned Unroll, unsigned Piece>
struct LaunchHabit<PeerPieces<Unroll, Piece>> : LaunchHabit<PeerMemory<Unroll>> {};
template <unsigned Unroll, unsigned Piece>
struct LaunchHabit<StagePieces<Unroll, Piece>> : LaunchHabit<PeerMemory<Unroll>> {};
// Few threads keep the switch busy. None of these figures is measured.
template <unsigned Unroll>
struct LaunchHabit<SwitchMemory<Unroll>> {
  static constexpr std::uint64_t perThread = 16 * Unroll;
  static constexpr std::uint32_t threads = 512;
  static constexpr std::uint32_t largestThreads = 512;
  static constexpr std::uint32_t largestBlocks = 32;
};
template <unsigned Unroll>
struct LaunchHabit<SwitchStage<Unroll>> : LaunchHabit<SwitchMemory<Unroll>> {};
template <PacketFormat P, unsigned Unroll>
struct LaunchHabit<SwitchPackets<P, Unroll>> : LaunchHabit<PacketTransport<P, Unroll>> {};
// One thread of a block works; the others help with ragged ends.
template <unsigned Chunk, unsigned Stages>
struct LaunchHabit<BulkMemory<Chunk, Stages>> {
  static constexpr std::uint64_t perThread = Chunk / 32;
  static constexpr std::uint32_t threads = 32;
  static constexpr std::uint32_t largestThreads = 32;
  static constexpr std::uint32_t largestBlocks = 32;
};

template <class Tr>
inline constexpr std::size_t sharedBytesOf = 0;
template <DirectTransport Tr>
inline constexpr std::size_t sharedBytesOf<Tr> = Tr::sharedBytes;

}  // namespace impl

// The launch for parts of `bytes` each: one turn a thread while the grid lasts, in blocks as small as that allows.
template <class Tr>
constexpr LaunchShape shapeFor(std::uint64_t bytes, std::uint32_t maxBlocks) {
  using Habit = impl::LaunchHabit<Tr>;
  maxBlocks = std::min(maxBlocks, Habit::largestBlocks);
  auto const needed = std::max<std::uint64_t>(1, (bytes + Habit::perThread - 1) / Habit::perThread);
  // A block smaller than usual, where one is enough: it starts sooner.
  auto threads = needed < Habit::threads ? static_cast<std::uint32_t>((needed + 31) / 32 * 32) : Habit::threads;
  while (threads < Habit::largestThreads && needed > std::uint64_t{threads} * maxBlocks) threads *= 2;
  auto const blocks = std::min<std::uint64_t>((needed + threads - 1) / threads, maxBlocks);
  return {.blocks = static_cast<unsigned>(blocks), .threads = threads, .dynamicShared = impl::sharedBytesOf<Tr>};
}

// The same for a pipeline, which has a least number of threads, and blocks by threes where its units are of blocks.
template <class Roles, class Tr>
constexpr LaunchShape pipelineShapeFor(std::uint64_t bytes, std::uint32_t maxBlocks) {
  auto const units = std::max(1u, maxBlocks / Roles::leastBlocks);
  auto shape = shapeFor<Tr>(bytes, units);
  shape.threads = std::max(shape.threads, Roles::leastThreads);
  shape.blocks *= Roles::leastBlocks;
  return shape;
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
