// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/copy_engine.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterOthersInt32(KernelTable& table) {
  addReductionsAndCopies<std::int32_t, Prod>(table);
  addReductionsAndCopies<std::int32_t, Min>(table);
  addReductionsAndCopies<std::int32_t, Max>(table);
  addReductionsAndCopies<std::int32_t, Avg>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
