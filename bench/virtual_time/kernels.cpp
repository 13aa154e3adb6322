// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library's kernels for bfloat16, compiled with the checker's hooks, so that their plain accesses take time too.
#include "kernels.hpp"

#include "collectives/kernels/device/add_kernels.hpp"

namespace virtual_time {

void enterTimedKernels(mscclpp::KernelTable& table) {
  namespace kernels = mscclpp::collectives_impl;
  kernels::addReductions<mscclpp::BFloat16, mscclpp::Sum>(table);
  kernels::addMoves(table);
}

}  // namespace virtual_time
