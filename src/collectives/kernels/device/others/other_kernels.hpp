// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Enters the kernels of all collectives but all-reduce with copies into the kernel table, for the machine that the
// including source is compiled for.
#pragma once

#include <string>

#include "collectives/kernels/device/kernels.hpp"
#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <class Composed, class T>
void start(KernelCall const& call) {
  auto const* const in = static_cast<T const*>(call.in);
  auto* const out = static_cast<T*>(call.out);
  if constexpr (needsInWindow<Composed> || needsOutWindow<Composed>) {
    // A window that the collective does not use may be missing.
    layout::WindowHandle const none{};
    launch(call.stream, call.shape, DirectKernel<Composed, T>{}, in, out, call.count, call.root, DeviceTeam(call.team),
           call.inWindow != nullptr ? *call.inWindow : none, call.outWindow != nullptr ? *call.outWindow : none);
  } else {
    launch(call.stream, call.shape, CollectiveKernel<Composed, T>{}, in, out, call.count, call.root,
           DeviceTeam(call.team));
  }
}

// `Shares`: ranks that the count is dealt out to.
template <class Tr, bool Shares>
LaunchShape shapeOf(std::uint32_t ranks, std::uint64_t bytes, std::uint32_t maxBlocks) {
  return shapeFor<Tr>(Shares ? (bytes + ranks - 1) / ranks : bytes, maxBlocks);
}

// Whether the bits of such a reduction are those of rank order; integers wrap around in any order.
template <class Schedule, class T>
constexpr bool inRankOrder(ReduceOp op) {
  return combinesInRankOrder<Schedule> || op == ReduceOp::none || (std::is_integral_v<T> && op != ReduceOp::avg);
}

template <class Composed, class C, class T, bool Shares = false>
void add(KernelTable& table, Collective collective, ReduceOp op, int ranks) {
  using Tr = typename C::Transport;
  if constexpr (sizeof(T) <= Tr::granule) {
    auto kernel = kernelOver<Tr>();
    kernel.start = &start<Composed, T>;
    kernel.requirement = &Composed::requirement;
    kernel.shape = &shapeOf<Tr, Shares>;
    kernel.inputWindow = needsInWindow<Composed>;
    kernel.outputWindow = needsOutWindow<Composed>;
    kernel.rankOrder = inRankOrder<typename C::Schedule, T>(op);
    // Peers would write what is still to be read.
    bool const exchanged = collective == Collective::allToAll || collective == Collective::scatter;
    kernel.inPlace = !kernel.outputWindow || !exchanged;
    table.add({kernelDevice, collective, std::string(C::name), dataTypeOf<T>(), op, ranks}, kernel);
  }
}

// Collectives that only move data have one kernel for all types, on bytes.
template <int Ranks = 0>
void addMoves(KernelTable& table) {
  MoveCompositions::forEach([&]<class C>() {
    using S = typename C::Schedule;
    using Tr = typename C::Transport;
    using T = std::uint8_t;
    constexpr auto none = ReduceOp::none;
    constexpr bool direct = std::same_as<S, Push>;
    add<AllGather<S, Tr, Ranks>, C, T>(table, Collective::allGather, none, Ranks);
    add<AllToAll<S, Tr, Ranks>, C, T>(table, Collective::allToAll, none, Ranks);
    add<Broadcast<S, Tr, Ranks>, C, T, direct>(table, Collective::broadcast, none, Ranks);
    add<Scatter<S, Tr, Ranks>, C, T>(table, Collective::scatter, none, Ranks);
    add<Gather<S, Tr, Ranks>, C, T>(table, Collective::gather, none, Ranks);
  });
  // A rank has one successor, however many there are.
  if constexpr (Ranks == 0) {
    BroadcastOnlyCompositions::forEach([&]<class C>() {
      add<Broadcast<typename C::Schedule, typename C::Transport>, C, std::uint8_t>(table, Collective::broadcast,
                                                                                   ReduceOp::none, Ranks);
    });
  }
}

template <class T, class Op, int Ranks = 0>
void addReductions(KernelTable& table) {
  ReduceCompositions::forEach([&]<class C>() {
    using S = typename C::Schedule;
    using Tr = typename C::Transport;
    constexpr bool direct = std::same_as<S, Pull>;
    add<ReduceScatter<S, Tr, Op, Ranks>, C, T>(table, Collective::reduceScatter, reduceOpOf<Op>(), Ranks);
    add<Reduce<S, Tr, Op, Ranks>, C, T, direct>(table, Collective::reduce, reduceOpOf<Op>(), Ranks);
  });
  ReduceOnlyCompositions::forEach([&]<class C>() {
    using S = typename C::Schedule;
    constexpr bool toSuccessor = std::same_as<S, Chain>;
    if constexpr (Ranks == 0 || !toSuccessor) {
      add<Reduce<S, typename C::Transport, Op, Ranks>, C, T, !toSuccessor>(table, Collective::reduce, reduceOpOf<Op>(),
                                                                           Ranks);
    }
  });
  AllReduceDirectCompositions::forEach([&]<class C>() {
    add<AllReduce<typename C::Schedule, typename C::Transport, Op, Ranks>, C, T, true>(table, Collective::allReduce,
                                                                                       reduceOpOf<Op>(), Ranks);
  });
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
