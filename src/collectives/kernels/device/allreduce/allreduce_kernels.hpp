// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Enters all-reduce kernels into the kernel table, for the machine that the including source is compiled for.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/kernels/device/kernels.hpp"
#include "mscclpp/algorithms/tuning.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <class AllReduce, class T>
void startAllReduce(KernelCall const& call) {
  launch(call.stream, call.shape, AllReduceKernel<AllReduce, T>{}, static_cast<T const*>(call.in),
         static_cast<T*>(call.out), call.count, DeviceTeam(call.team));
}

template <AllReduceAlgorithm A>
LaunchShape allReduceShape(std::uint32_t ranks, std::uint64_t bytes, std::uint32_t maxBlocks) {
  auto const choice = shapeAllReduce(A, ranks, bytes, maxBlocks);
  return {.blocks = choice.blocks, .threads = choice.threads};
}

// Every composition that can carry T.
template <class T, class Op, int Ranks = 0>
void addAllReduce(KernelTable& table) {
  AllReduceCompositions::forEach([&]<class C>() {
    if constexpr (sizeof(T) <= C::Transport::granule) {
      using Composed = AllReduce<typename C::Schedule, typename C::Transport, Op, Ranks>;
      auto kernel = kernelOver<typename C::Transport>();
      kernel.start = &startAllReduce<Composed, T>;
      kernel.requirement = &Composed::requirement;
      kernel.shape = &allReduceShape<*allReduceByName(C::name)>;
      table.add({kernelDevice, Collective::allReduce, std::string(C::name), dataTypeOf<T>(), reduceOpOf<Op>(), Ranks},
                kernel);
    }
  });
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
