// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/allreduce/allreduce_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceSumFloat32ByRanks(KernelTable& table) {
  addAllReduce<float, Sum, 2>(table);
  addAllReduce<float, Sum, 4>(table);
  addAllReduce<float, Sum, 8>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
