// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/allreduce/allreduce_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceSumInt8(KernelTable& table) {
  addAllReduce<std::int8_t, Sum>(table);
  addAllReduce<std::uint8_t, Sum>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
