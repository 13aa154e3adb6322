// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compositions of every collective that are compiled into programs which choose among them at run time, with names,
// and the launch that suits each. A kernel of your own may use any other. Kernel table, choice, cost model, benchmark
// and tests read this list; what they need to know of a composition its schedule and transport state
// (core/facts.hpp).
//
//   oneshot_* twoshot_*   all-reduce in one or two exchanges; broadcast and reduce in two
//   *ll8 *ll16 *ll128     of packets
//   *memory *memory_wide  through the stage, with fewer or more payloads a thread
//   push push_bulk        straight into the peers' outputs, which are symmetric, by stores or bulk copies
//   pull pull_wide        straight from the peers' inputs, which are symmetric
//   twoshot_push(_wide), push (of a reduce)   contributions through the stage, results straight into symmetric outputs
//   chain                 from rank to rank in pieces: broadcast into symmetric outputs, reduce through the stage
//   chain_staged          broadcast from rank to rank through the stage
//   nvls_packet           packets that the switch hands to all
//   nvls nvls_zero_copy   the switch reads and writes symmetric buffers
//   nvls_warp_pipeline nvls_block_pipeline   the switch reduces in the workspaces, while other threads copy
#pragma once

#include <algorithm>
#include <cstdint>

#include "mscclpp/algorithms/core/composition.hpp"
#include "mscclpp/algorithms/core/facts.hpp"
#include "mscclpp/algorithms/kernels.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

using enum Collective;

// All-reduce takes other schedules than the rest; a name may be used by several collectives, not twice by one.
using ToAll = For<allReduce>;
using Moves = For<allGather, allToAll, broadcast, scatter, gather>;
using Folds = For<reduceScatter, reduce>;
using AllReductions = For<allReduce, reduceScatter, reduce>;
using AllButAllReduce = For<allGather, allToAll, broadcast, scatter, gather, reduceScatter, reduce>;

using AllCompositions =
    CompositionList<Composition<"oneshot_ll8", OneShot, PacketTransport<LL8>, ToAll>,
                    Composition<"oneshot_ll16", OneShot, PacketTransport<LL16>, ToAll>,
                    Composition<"oneshot_ll128", OneShot, PacketTransport<LL128>, ToAll>,
                    Composition<"oneshot_memory", OneShot, MemoryTransport<2>, ToAll>,
                    Composition<"twoshot_ll8", TwoShot, PacketTransport<LL8>, ToAll>,
                    Composition<"twoshot_ll16", TwoShot, PacketTransport<LL16>, ToAll>,
                    Composition<"twoshot_ll128", TwoShot, PacketTransport<LL128>, ToAll>,
                    Composition<"twoshot_memory", TwoShot, MemoryTransport<4>, ToAll>,
                    Composition<"twoshot_memory_wide", TwoShot, MemoryTransport<8>, ToAll>,
                    Composition<"twoshot_push", TwoShotPush, MemoryTransport<4>, ToAll>,
                    Composition<"twoshot_push_wide", TwoShotPush, MemoryTransport<8>, ToAll>,
                    Composition<"ll8", OneExchange, PacketTransport<LL8>, AllButAllReduce>,
                    Composition<"ll16", OneExchange, PacketTransport<LL16>, AllButAllReduce>,
                    Composition<"ll128", OneExchange, PacketTransport<LL128>, AllButAllReduce>,
                    Composition<"memory", OneExchange, MemoryTransport<4>, AllButAllReduce>,
                    Composition<"memory_wide", OneExchange, MemoryTransport<8>, Folds>,
                    Composition<"push", PushSchedule, PeerMemory<4>, Moves>,
                    Composition<"push_bulk", PushSchedule, BulkMemory<>, Moves>,
                    Composition<"pull", PullSchedule, PeerMemory<1>, AllReductions>,
                    Composition<"pull_wide", PullSchedule, PeerMemory<2>, AllReductions>,
                    Composition<"push", TwoShotPush, MemoryTransport<8>, For<reduce>>,
                    Composition<"twoshot_ll128", TwoShotRooted, PacketTransport<LL128>, For<broadcast, reduce>>,
                    Composition<"twoshot_memory", TwoShotRooted, MemoryTransport<4>, For<broadcast, reduce>>,
                    Composition<"chain", ChainSchedule, PeerMemory<4>, For<broadcast>>,
                    Composition<"chain_staged", ChainSchedule, StagePieces<>, For<broadcast>>,
                    Composition<"chain", ChainSchedule, StagePieces<>, For<reduce>>,
                    // Through the switch, for devices that have one. All-to-all and the like send nobody the same.
                    Composition<"nvls_packet", OneShot, SwitchPackets<LL8>, ToAll>,
                    Composition<"nvls_zero_copy", SwitchSchedule, SwitchMemory<4>, ToAll>,
                    Composition<"nvls_warp_pipeline", SwitchPipeline<WarpRoles>, SwitchStage<4>, ToAll>,
                    Composition<"nvls_block_pipeline", SwitchPipeline<BlockRoles>, SwitchStage<4>, ToAll>,
                    Composition<"nvls_packet", OneExchange, SwitchPackets<LL8>, For<allGather, broadcast>>,
                    Composition<"nvls", SwitchSchedule, SwitchMemory<4>, For<allGather, broadcast, reduceScatter>>>;

}  // namespace impl

using Catalogue = impl::AllCompositions;

namespace impl {

// Types, since nvcc cannot write out an alias that looks a name up.
template <Collective Of, FixedName Name>
struct Named {
  using Composition = Catalogue::At<Catalogue::indexOf(Of, Name.view()).value()>;
};
template <Collective Of, FixedName Name, class Op, int Ranks, class Acc>
struct NamedTemplate {
  using Composition = typename Named<Of, Name>::Composition;
  using Type = CollectiveOf<Of, typename Composition::Schedule, typename Composition::Transport, Op, Ranks, Acc>;
};

}  // namespace impl

// The composition of a name, and the collective that it makes.
template <Collective Of, FixedName Name>
using CompositionOf = typename impl::Named<Of, Name>::Composition;
template <Collective Of, FixedName Name, class Op = Sum, int Ranks = 0, class Acc = void>
using NamedCollective = typename impl::NamedTemplate<Of, Name, Op, Ranks, Acc>::Type;
template <FixedName Name, class Op, int Ranks = 0, class Acc = void>
using NamedAllReduce = typename impl::NamedTemplate<Collective::allReduce, Name, Op, Ranks, Acc>::Type;

// Largest grid that the shapes below use; size workspaces for it.
inline constexpr std::uint32_t largestGrid = 288;

// The launch of a schedule over a transport, for `bytes` that each rank works on: one turn a thread while the grid
// lasts, in blocks as small as that allows.
template <class S, class Tr>
constexpr LaunchShape shapeFor(std::uint64_t bytes, std::uint32_t maxBlocks) {
  constexpr LaunchPolicy policy = Tr::launch;
  constexpr auto unit = leastBlocksOf<S>();
  maxBlocks = std::min(std::max(1u, maxBlocks / unit), policy.largestBlocks);
  auto const needed = std::max<std::uint64_t>(1, (bytes + policy.perThread - 1) / policy.perThread);
  auto threads = needed <= spreadBelowOf<S, Tr>() ? policy.threads / 2 : policy.threads;
  // A block smaller than usual, where one is enough: it starts sooner.
  if (needed < threads) threads = static_cast<std::uint32_t>((needed + 31) / 32 * 32);
  auto const largestThreads =
      maxBlocks < policy.largestBlocks ? std::max(policy.largestThreads, policy.crowdedThreads) : policy.largestThreads;
  while (threads < largestThreads && needed > std::uint64_t{threads} * maxBlocks) threads *= 2;
  auto const blocks = std::min<std::uint64_t>((needed + threads - 1) / threads, maxBlocks);
  return {.blocks = static_cast<unsigned>(blocks) * unit,
          .threads = std::max(threads, leastThreadsOf<S>()),
          .dynamicShared = sharedBytesOf<Tr>()};
}

// The same for a collective: `bytes` of the smaller buffer.
template <class C>
constexpr LaunchShape shapeOf(std::uint32_t ranks, std::uint64_t bytes, std::uint32_t maxBlocks) {
  bool const shares = dealsOut<typename C::Schedule>(C::collective);
  return shapeFor<typename C::Schedule, typename C::Transport>(shares ? (bytes + ranks - 1) / ranks : bytes, maxBlocks);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
