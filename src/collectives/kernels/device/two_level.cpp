// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/two_level.hpp"

#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <class T>
void startTwoLevelReduction(TwoLevelStart const& start, TwoLevelCall const& call) {
  launch(start.stream, start.shape, TwoLevelReduceKernel<T>{}, call, DeviceHierarchy(start.nodes));
}

}  // namespace MSCCLPP_BACKEND

void startTwoLevel(TwoLevelStart const& start, TwoLevelCall const& call, MachineTag<kernelDevice>) {
  if (!reduces(call.collective)) {
    return launch(start.stream, start.shape, TwoLevelMoveKernel{}, call, DeviceHierarchy(start.nodes));
  }
  withDataType(start.type, [&]<class T>(std::type_identity<T>) { startTwoLevelReduction<T>(start, call); });
}

}  // namespace mscclpp::collectives_impl
