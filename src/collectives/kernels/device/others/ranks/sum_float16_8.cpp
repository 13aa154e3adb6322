// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/copy_engine.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterSumFloat16For8(KernelTable& table) { addReductionsAndCopies<Half, Sum, 8>(table); }

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
