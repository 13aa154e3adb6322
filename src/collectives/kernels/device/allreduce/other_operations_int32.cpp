// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/allreduce/allreduce_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceOthersInt32(KernelTable& table) {
  addAllReduce<std::int32_t, Prod>(table);
  addAllReduce<std::int32_t, Min>(table);
  addAllReduce<std::int32_t, Max>(table);
  addAllReduce<std::int32_t, Avg>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
