// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/copy_engine.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterMoves(KernelTable& table) {
  addMoves(table);
  addMoveCopies(table, Collective::allGather, &startAllGatherCopies);
  addMoveCopies(table, Collective::allToAll, &startAllToAllCopies);
  addMoveCopies(table, Collective::scatter, &startScatterCopies);
  addMoveCopies(table, Collective::gather, &startGatherCopies);
  addMoveCopies(table, Collective::broadcast, &startBroadcastCopies);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
