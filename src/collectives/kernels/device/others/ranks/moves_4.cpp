// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/other_kernels.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterMovesFor4(KernelTable& table) { addMoves<4>(table); }

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
