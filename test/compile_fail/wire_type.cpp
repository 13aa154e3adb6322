// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: Wire: values travel as Float8E4M3, Float8E5M2 or int8
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

#if defined(MSCCLPP_EXPECT_FAILURE)
using Quantised = Half;
#else
using Quantised = Float8E4M3;
#endif

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, std::size_t count, DeviceTeam const& team) const {
    AllReduce<TwoShot, Wire<Quantised, 64>, Sum>{team}(thisGrid(), View{x, count}, View{y, count});
  }
};
