// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/allreduce/allreduce_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceSumBfloat16ByRanks(KernelTable& table) {
  addAllReduce<BFloat16, Sum, 2>(table);
  addAllReduce<BFloat16, Sum, 4>(table);
  addAllReduce<BFloat16, Sum, 8>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
