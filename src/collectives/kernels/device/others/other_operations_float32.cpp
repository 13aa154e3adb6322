// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/copy_engine.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterOthersFloat32(KernelTable& table) {
  addReductionsAndCopies<float, Prod>(table);
  addReductionsAndCopies<float, Min>(table);
  addReductionsAndCopies<float, Max>(table);
  addReductionsAndCopies<float, Avg>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
