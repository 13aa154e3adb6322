// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Enters all-reduce kernels into the kernel table, for the machine that the including source is compiled for.
#pragma once

#include <type_traits>
#include <utility>

#include "kernel_table.hpp"
#include "mscclpp/algorithms/tuning.hpp"
#include "mscclpp/host/launch.hpp"

namespace mscclpp::bench {
namespace MSCCLPP_BACKEND {

template <class T, class Op, int Ranks, AllReduceAlgorithm A>
void startAllReduce(KernelCall const& call) {
  launch(call.stream, call.shape, AllReduceKernel<AllReduceOf<A, Op, Ranks>, T>{}, static_cast<T const*>(call.in),
         static_cast<T*>(call.out), call.count, DeviceTeam(call.team));
}

// Every algorithm that can carry T.
template <class T, class Op, int Ranks = 0>
void addAllReduce() {
  auto const add = []<AllReduceAlgorithm A>(std::integral_constant<AllReduceAlgorithm, A>) {
    if constexpr (canCarry<A>(sizeof(T))) {
      KernelTable::instance().add(kernelDevice, elementTypeOf<T>(), operationOf<Op>(), A, Ranks,
                                  &startAllReduce<T, Op, Ranks, A>);
    }
  };
  auto const addAll = [&]<std::size_t... I>(std::index_sequence<I...>) {
    (add(std::integral_constant<AllReduceAlgorithm, static_cast<AllReduceAlgorithm>(I)>{}), ...);
  };
  addAll(std::make_index_sequence<allReduceNames.size()>{});
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::bench
