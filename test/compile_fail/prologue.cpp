// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: a prologue is called with a Vector of accumulators
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

struct Wrong {
  MSCCLPP_DEVICE float operator()(char const*) const { return 0; }
};

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), WithPrologue{View{in, count}, Wrong{}},
                                                         View{out, count});
#endif
  }
};
