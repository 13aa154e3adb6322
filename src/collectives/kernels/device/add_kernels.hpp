// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Enters the catalogue's compositions into the kernel table, for the machine that the including source is compiled for.
// What the host must know of a kernel follows from what its schedule and transport state (algorithms/core/facts.hpp).
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

// What follows from the transport alone; the functions are left to fill in.
template <class Tr>
constexpr Kernel kernelOver() {
  Kernel kernel;
  kernel.overlaps = true;
  if constexpr (requires { typename Tr::Format; }) {
    kernel.packets = true;
    kernel.needsWholeLines = Tr::Format::wholeWarp;
    if (Tr::Format::wholeWarp) kernel.minThreads = 32;
  }
  kernel.multicast = throughSwitch<Tr>;
  return kernel;
}

template <class Kernel, class C, class T, class... Leading>
void launchKernel(KernelCall const& call, Kernel const& kernel, Leading... leading) {
  auto const* const in = static_cast<T const*>(call.in);
  auto* const out = static_cast<T*>(call.out);
  if constexpr (needsInWindow<C> || needsOutWindow<C>) {
    // A window that the collective does not use may be missing.
    layout::WindowHandle const none{};
    launch(call.stream, call.shape, kernel, leading..., in, out, call.count, call.root, call.team,
           call.inWindow != nullptr ? *call.inWindow : none, call.outWindow != nullptr ? *call.outWindow : none);
  } else {
    launch(call.stream, call.shape, kernel, leading..., in, out, call.count, call.root, call.team);
  }
}

template <class C, class T>
void start(KernelCall const& call) {
  if constexpr (needsInWindow<C> || needsOutWindow<C>) {
    launchKernel<DirectKernel<C, T>, C, T>(call, {});
  } else {
    launchKernel<CollectiveKernel<C, T>, C, T>(call, {});
  }
}

template <class C, class T>
constexpr Kernel kernelOf(ReduceOp op, void (*start)(KernelCall const&)) {
  using S = typename C::Schedule;
  auto kernel = kernelOver<typename C::Transport>();
  kernel.start = start;
  kernel.requirement = &C::requirement;
  kernel.shape = &shapeOf<C>;
  kernel.inputWindow = needsInWindow<C>;
  kernel.outputWindow = needsOutWindow<C>;
  // Peers would write what is still to be read.
  kernel.inPlace = !kernel.outputWindow || traitsOf(C::collective).in.extent != Extent::partPerRank;
  // Integers wrap around in any order.
  kernel.rankOrder = isRankOrder<S>() || op == ReduceOp::none || (std::is_integral_v<T> && op != ReduceOp::avg);
  kernel.minThreads = std::max(kernel.minThreads, leastThreadsOf<S>());
  kernel.minBlocks = leastBlocksOf<S>();
  return kernel;
}

// Whether composition C is built for these elements and this operation, and for a fixed number of ranks.
template <class C, class T, class Op, int Ranks>
constexpr bool isOffered() {
  using S = typename C::Schedule;
  using Tr = typename C::Transport;
  if (sizeof(T) > Tr::granule) return false;
  if (Ranks != 0 && (!isFasterForFixedRanks<S>() || throughSwitch<Tr>)) return false;
  // FP8 only with code for one family of GPUs, which a library for several is not.
  constexpr bool reducedBySwitch = requires { S::template reduces<T, Op>; };
  return canReduce<S, T, Op>() && !(reducedBySwitch && sizeof(T) == 1 && !std::is_integral_v<T>);
}

template <Collective Of, class T, class Op, int Ranks>
void addCollective(KernelTable& table) {
  constexpr auto op = reduces(Of) ? reduceOpOf<Op>() : ReduceOp::none;
  Catalogue::forEachOf<Of>([&]<class C>() {
    if constexpr (isOffered<C, T, Op, Ranks>()) {
      using Made = CollectiveOf<Of, typename C::Schedule, typename C::Transport, Op, Ranks>;
      table.add({kernelDevice, Of, std::string(C::name), dataTypeOf<T>(), op, Ranks},
                kernelOf<Made, T>(op, &start<Made, T>));
    }
  });
}

// Collectives that only move data have one kernel for all types, on bytes.
template <int Ranks = 0>
void addMoves(KernelTable& table) {
  using enum Collective;
  addCollective<allGather, std::uint8_t, Sum, Ranks>(table);
  addCollective<allToAll, std::uint8_t, Sum, Ranks>(table);
  addCollective<broadcast, std::uint8_t, Sum, Ranks>(table);
  addCollective<scatter, std::uint8_t, Sum, Ranks>(table);
  addCollective<gather, std::uint8_t, Sum, Ranks>(table);
}

template <class T, class Op, int Ranks = 0>
void addReductions(KernelTable& table) {
  using enum Collective;
  addCollective<allReduce, T, Op, Ranks>(table);
  addCollective<reduceScatter, T, Op, Ranks>(table);
  addCollective<reduce, T, Op, Ranks>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
