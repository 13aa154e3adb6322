// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: input and output have the same element type
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* in, double* out, std::size_t count, DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(thisGrid(), View{in, count}, View{out, count});
#endif
  }
};
