// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: an epilogue is called with a Vector of accumulators
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

struct Wrong {
  MSCCLPP_DEVICE float operator()(char const*) const { return 0; }
};

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{in, count}, View{out, count}, Wrong{});
#endif
  }
};
