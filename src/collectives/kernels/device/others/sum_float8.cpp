// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/copy_engine.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterSumFloat8(KernelTable& table) {
  addReductionsAndCopies<Float8E4M3, Sum>(table);
  addReductionsAndCopies<Float8E5M2, Sum>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
