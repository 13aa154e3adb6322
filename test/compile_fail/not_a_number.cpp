// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: elements are float, double, Half, BFloat16, FP8 or integers of 8 to 64 bits
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(bool const* in, bool* out, std::size_t count, DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{in, count}, View{out, count});
#endif
  }
};
