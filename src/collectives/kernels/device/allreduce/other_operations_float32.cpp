// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/allreduce/allreduce_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceOthersFloat32(KernelTable& table) {
  addAllReduce<float, Prod>(table);
  addAllReduce<float, Min>(table);
  addAllReduce<float, Max>(table);
  addAllReduce<float, Avg>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
