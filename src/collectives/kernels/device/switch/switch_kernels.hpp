// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Enters the kernels of collectives through the switch into the kernel table, for the machine that the including source
// is compiled for. What the switch cannot reduce is not entered, so that asking for it is an error.
#pragma once

#include <type_traits>

#include "collectives/kernels/device/others/other_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <class Roles, class Tr>
LaunchShape pipelineShape(std::uint32_t, std::uint64_t bytes, std::uint32_t maxBlocks) {
  return pipelineShapeFor<Roles, Tr>(bytes, maxBlocks);
}

template <class Schedule>
struct RolesOf : std::type_identity<void> {};
template <class Roles>
struct RolesOf<SwitchPipeline<Roles>> : std::type_identity<Roles> {};

template <class C, class T, class Op>
void addSwitchAllReduce(KernelTable& table) {
  using Tr = typename C::Transport;
  using Roles = typename RolesOf<typename C::Schedule>::type;
  using Composed = AllReduce<typename C::Schedule, Tr, Op>;
  if constexpr (std::is_void_v<Roles>) {
    add<Composed, C, T, true>(table, Collective::allReduce, reduceOpOf<Op>(), 0);
  } else {
    auto kernel = kernelOver<Tr>();
    kernel.start = &start<Composed, T>;
    kernel.requirement = &Composed::requirement;
    kernel.shape = &pipelineShape<Roles, Tr>;
    kernel.minThreads = Roles::leastThreads;
    kernel.minBlocks = Roles::leastBlocks;
    kernel.rankOrder = inRankOrder<typename C::Schedule, T>(reduceOpOf<Op>());
    table.add({kernelDevice, Collective::allReduce, std::string(C::name), dataTypeOf<T>(), reduceOpOf<Op>(), 0},
              kernel);
  }
}

template <class T, class Op>
void addSwitchReductions(KernelTable& table) {
  using Packets = SwitchPacketAllReduce;
  add<AllReduce<typename Packets::Schedule, typename Packets::Transport, Op>, Packets, T>(table, Collective::allReduce,
                                                                                          reduceOpOf<Op>(), 0);
  // FP8 only with code for one family of GPUs, which a library for several is not.
  if constexpr (switchReduces<T, Op> && sizeof(T) > 1) {
    SwitchAllReduceCompositions::forEach([&]<class C>() { addSwitchAllReduce<C, T, Op>(table); });
    using C = SwitchReduceScatter;
    add<ReduceScatter<typename C::Schedule, typename C::Transport, Op>, C, T>(table, Collective::reduceScatter,
                                                                              reduceOpOf<Op>(), 0);
  }
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
