// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: the switch does not combine this type by this operation
// expect: the switch does not combine this type into memory by this operation
// expect: a multicast access moves 4, 8 or 16 bytes
// expect: the switch moves floats, small floats and integers of 32 and 64 bits only
// expect: a multicast load is relaxed or acquire
#include "mscclpp/device/multimem.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(float* f, Half* h, std::int16_t* i, std::int32_t* n) const {
    constexpr auto relaxed = Order::relaxed;
    constexpr auto system = Scope::system;
#if defined(MSCCLPP_EXPECT_FAILURE)
    f[0] = multimemLoadReduce<relaxed, system, Max>(f);
    multimemStoreReduce<relaxed, system, Min>(reinterpret_cast<f16x2*>(h), f16x2{});
    multimemStore<relaxed, system>(h, Half{});
    multimemStore<relaxed, system>(i, std::int16_t{1});
    n[0] = multimemLoadReduce<Order::release, system>(n);
#else
    f[0] = multimemLoadReduce<relaxed, system>(f);
    multimemStoreReduce<relaxed, system>(reinterpret_cast<f16x2*>(h), f16x2{});
    multimemStore<relaxed, system>(reinterpret_cast<f16x8*>(h), f16x8{});
    i[0] = 1;
    n[0] = multimemLoadReduce<Order::acquire, system, Max>(n);
#endif
  }
};
