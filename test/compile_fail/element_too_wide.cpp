// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: elements of this type do not fit into a packet of this transport
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(double const* in, double* out, std::size_t count, DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    AllReduce<OneShot, PacketTransport<LL8>, Sum>{team}(thisGrid(), View{in, count}, View{out, count});
#endif
  }
};
