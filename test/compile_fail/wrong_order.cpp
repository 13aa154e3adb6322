// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: a load is relaxed or acquire
// expect: a store is relaxed or release
#include "mscclpp/device/memory.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(unsigned* word) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    store<Order::acquire, Scope::system>(word, load<Order::release, Scope::system>(word));
#else
    store<Order::release, Scope::system>(word, load<Order::acquire, Scope::system>(word));
#endif
  }
};
