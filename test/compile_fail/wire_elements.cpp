// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: Wire: elements are float, Half or BFloat16
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

#if defined(MSCCLPP_EXPECT_FAILURE)
using Element = std::int32_t;
#else
using Element = bf16;
#endif

struct Kernel {
  MSCCLPP_DEVICE void operator()(Element const* x, Element* y, std::size_t count, DeviceTeam const& team) const {
    AllReduce<TwoShot, Wire<Float8E4M3, 64>, Sum>{team}(thisGrid(), View{x, count}, View{y, count});
  }
};
