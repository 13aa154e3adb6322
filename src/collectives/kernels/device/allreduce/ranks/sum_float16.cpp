// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/allreduce/allreduce_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceSumFloat16ByRanks(KernelTable& table) {
  addAllReduce<Half, Sum, 2>(table);
  addAllReduce<Half, Sum, 4>(table);
  addAllReduce<Half, Sum, 8>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
