// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: a reduction operation needs op\(a, b\) and op\.finish\(total, count\) on the accumulator type
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

struct NoFinish {
  MSCCLPP_DEVICE float operator()(float a, float b) const { return a + b; }
};

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    AllReduce<OneShot, PacketTransport<LL16>, NoFinish>{team}(thisGrid(), View{in, count}, View{out, count});
#endif
  }
};
