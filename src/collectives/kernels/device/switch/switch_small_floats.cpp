// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/switch/switch_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterSwitchSmallFloats(KernelTable& table) {
  addSwitchReductions<Half, Sum>(table);
  addSwitchReductions<BFloat16, Sum>(table);
  addSwitchReductions<BFloat16, Prod>(table);
  addSwitchReductions<BFloat16, Min>(table);
  addSwitchReductions<BFloat16, Max>(table);
  addSwitchReductions<BFloat16, Avg>(table);
  addSwitchReductions<Float8E4M3, Sum>(table);
  addSwitchReductions<Float8E5M2, Sum>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
