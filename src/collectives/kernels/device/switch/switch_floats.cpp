// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/switch/switch_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterSwitchFloats(KernelTable& table) {
  addSwitchReductions<float, Sum>(table);
  addSwitchReductions<float, Prod>(table);
  addSwitchReductions<float, Min>(table);
  addSwitchReductions<float, Max>(table);
  addSwitchReductions<float, Avg>(table);
  addSwitchReductions<double, Sum>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
