// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "mscclpp/collectives/kernel_table.hpp"

namespace virtual_time {

// In place of those of the library, whose plain accesses take no time.
void enterTimedKernels(mscclpp::KernelTable& table);

}  // namespace virtual_time
