// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/switch/switch_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterSwitchMoves(KernelTable& table) {
  SwitchMoveCompositions::forEach([&]<class C>() {
    using S = typename C::Schedule;
    using Tr = typename C::Transport;
    add<AllGather<S, Tr>, C, std::uint8_t>(table, Collective::allGather, ReduceOp::none, 0);
    add<Broadcast<S, Tr>, C, std::uint8_t>(table, Collective::broadcast, ReduceOp::none, 0);
  });
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
