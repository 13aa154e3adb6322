// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/switch/switch_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterSwitchIntegers(KernelTable& table) {
  addSwitchReductions<std::int32_t, Sum>(table);
  addSwitchReductions<std::int32_t, Prod>(table);
  addSwitchReductions<std::int32_t, Min>(table);
  addSwitchReductions<std::int32_t, Max>(table);
  addSwitchReductions<std::int32_t, Avg>(table);
  addSwitchReductions<std::uint32_t, Sum>(table);
  addSwitchReductions<std::int64_t, Sum>(table);
  addSwitchReductions<std::uint64_t, Sum>(table);
  addSwitchReductions<std::int8_t, Sum>(table);
  addSwitchReductions<std::uint8_t, Sum>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
