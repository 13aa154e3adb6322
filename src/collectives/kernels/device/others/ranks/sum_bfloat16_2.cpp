// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/copy_engine.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterSumBfloat16For2(KernelTable& table) { addReductionsAndCopies<BFloat16, Sum, 2>(table); }

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
