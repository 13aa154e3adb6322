// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Multicast accesses in all orders and scopes.
#pragma once

#include "mscclpp/device/multimem.hpp"

namespace mscclpp_test {

using namespace mscclpp;

// Calls f.template operator()<O, S>() for the orders, each with every scope.
template <Order... O, class F>
__device__ __forceinline__ void forOrders(F&& f) {
  ((f.template operator()<O, Scope::block>(), f.template operator()<O, Scope::device>(),
    f.template operator()<O, Scope::system>()),
   ...);
}

template <class Op, class Acc, class T, unsigned... N>
__device__ __forceinline__ void loads(T* p, T* out) {
  forOrders<Order::relaxed, Order::acquire>([&]<Order O, Scope S>() {
    (((*reinterpret_cast<Vector<T, N>*>(out)) =
          multimemLoadReduce<O, S, Op, Acc>(reinterpret_cast<Vector<T, N> const*>(p))),
     ...);
  });
}

}  // namespace mscclpp_test
