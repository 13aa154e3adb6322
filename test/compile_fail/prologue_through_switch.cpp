// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: the switch gets elements as they are
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

struct Kernel {
  MSCCLPP_DEVICE void operator()(float const* in, SymmetricView<bf16> const& out, std::size_t count,
                                 DeviceTeam const& team) const {
#if defined(MSCCLPP_EXPECT_FAILURE)
    AllGather<SwitchSchedule, SwitchMemory<4>>{team}(thisGrid(),
                                                     WithPrologue{View{in, count}, [](auto v) { return v; }}, out);
#endif
  }
};
