// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels whose operation is an argument, for what is rarely reduced: a few compositions of each collective that take
// any size, so that every type has every operation at a quarter of the kernels. The operation lies in the block's
// shared memory; asking for it costs nothing beside a packet's way.
#pragma once

#include <string_view>

#include "collectives/kernels/device/add_kernels.hpp"
#include "mscclpp/device/any_operation.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

struct BlocksOperation {
  static constexpr std::string_view name = "any";

  // Of the block that this thread is in.
  MSCCLPP_DEVICE static ReduceOp& chosen() { return arch::blockShared<ReduceOp, BlocksOperation>(); }

  template <Arithmetic A>
  MSCCLPP_DEVICE A operator()(A a, A b) const {
    return AnyOperation{chosen()}(a, b);
  }
  template <Arithmetic A>
  MSCCLPP_DEVICE A finish(A total, int count) const {
    return AnyOperation{chosen()}.finish(total, count);
  }
};

template <class C, class T>
struct AnyOperationKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(ReduceOp op, T const* in, T* out, std::size_t count, int root,
                                 DeviceTeam const& team) const {
    auto const block = thisBlock();
    if (block.rank() == 0) BlocksOperation::chosen() = op;
    block.sync();
    CollectiveKernel<C, T>{}(in, out, count, root, team);
  }
};

template <class C, class T>
void startAnyOperation(KernelCall const& call) {
  launchKernel<AnyOperationKernel<C, T>, C, T>(call, {}, call.op);
}

// Averages of what gradients are made of have kernels of their own.
template <class T>
inline constexpr bool hasOwnAverage = !std::is_integral_v<T> && (sizeof(T) == 2 || sizeof(T) == 4);

constexpr bool takesAnyOperation(std::string_view name) {
  for (auto const taken : {"oneshot_ll16", "twoshot_memory", "ll16", "memory", "nvls_packet"}) {
    if (name == taken) return true;
  }
  return false;
}

template <Collective Of, class T>
void addAnyOperation(KernelTable& table) {
  Catalogue::forEachOf<Of>([&]<class C>() {
    if constexpr (takesAnyOperation(C::name) && sizeof(T) <= C::Transport::granule) {
      using Made = CollectiveOf<Of, typename C::Schedule, typename C::Transport, BlocksOperation>;
      for (auto op : reduceOps) {
        if (op == ReduceOp::sum || (op == ReduceOp::avg && hasOwnAverage<T>)) continue;
        table.add({kernelDevice, Of, std::string(C::name), dataTypeOf<T>(), op, 0},
                  kernelOf<Made, T>(op, &startAnyOperation<Made, T>));
      }
    }
  });
}

template <class... T>
void addRareOperations(KernelTable& table) {
  (addAnyOperation<Collective::allReduce, T>(table), ...);
  (addAnyOperation<Collective::reduceScatter, T>(table), ...);
  (addAnyOperation<Collective::reduce, T>(table), ...);
}

// What the switch reduces by them.
template <class Op, class... T>
void addSwitchReductions(KernelTable& table) {
  auto const add = [&]<Collective Of, class Each>() {
    Catalogue::forEachOf<Of>([&]<class C>() {
      if constexpr (requires { C::Schedule::template reduces<Each, Op>; } && isOffered<C, Each, Op, 0>()) {
        using Made = CollectiveOf<Of, typename C::Schedule, typename C::Transport, Op>;
        table.add({kernelDevice, Of, std::string(C::name), dataTypeOf<Each>(), reduceOpOf<Op>(), 0},
                  kernelOf<Made, Each>(reduceOpOf<Op>(), &start<Made, Each>));
      }
    });
  };
  (add.template operator()<Collective::allReduce, T>(), ...);
  (add.template operator()<Collective::reduceScatter, T>(), ...);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
