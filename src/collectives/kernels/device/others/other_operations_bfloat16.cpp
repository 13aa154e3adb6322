// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/copy_engine.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterOthersBfloat16(KernelTable& table) {
  addReductionsAndCopies<BFloat16, Prod>(table);
  addReductionsAndCopies<BFloat16, Min>(table);
  addReductionsAndCopies<BFloat16, Max>(table);
  addReductionsAndCopies<BFloat16, Avg>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
