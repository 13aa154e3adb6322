// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/allreduce/allreduce_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceOthersBfloat16(KernelTable& table) {
  addAllReduce<BFloat16, Prod>(table);
  addAllReduce<BFloat16, Min>(table);
  addAllReduce<BFloat16, Max>(table);
  addAllReduce<BFloat16, Avg>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
