// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/allreduce/allreduce_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceSumInt64(KernelTable& table) {
  addAllReduce<std::int64_t, Sum>(table);
  addAllReduce<std::uint64_t, Sum>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
