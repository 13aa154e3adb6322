// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every source of this folder that holds kernels has one function that enters them; this one calls all of them.
#include "collectives/kernels/enter_kernels.hpp"

#include "mscclpp/base/config.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterAllReduceOthersBfloat16(KernelTable& table);
void enterAllReduceOthersFloat32(KernelTable& table);
void enterAllReduceOthersInt32(KernelTable& table);
void enterAllReduceSumFloat16Bfloat16(KernelTable& table);
void enterAllReduceSumFloat32Float64(KernelTable& table);
void enterAllReduceSumFloat8(KernelTable& table);
void enterAllReduceSumInt32(KernelTable& table);
void enterAllReduceSumInt64(KernelTable& table);
void enterAllReduceSumInt8(KernelTable& table);
void enterMessages(KernelTable& table);
void enterMoves(KernelTable& table);
void enterSumFloat16Bfloat16(KernelTable& table);
void enterSumFloat32Float64(KernelTable& table);
void enterSumFloat8(KernelTable& table);
void enterSumIntegers(KernelTable& table);
void enterOthersBfloat16(KernelTable& table);
void enterOthersFloat32(KernelTable& table);
void enterOthersInt32(KernelTable& table);
void enterSwitchMoves(KernelTable& table);
void enterSwitchFloats(KernelTable& table);
void enterSwitchSmallFloats(KernelTable& table);
void enterSwitchIntegers(KernelTable& table);
#if defined(MSCCLPP_COLLECTIVES_FIXED_RANKS)
void enterAllReduceSumBfloat16ByRanks(KernelTable& table);
void enterAllReduceSumFloat16ByRanks(KernelTable& table);
void enterAllReduceSumFloat32ByRanks(KernelTable& table);
void enterMovesFor2(KernelTable& table);
void enterMovesFor4(KernelTable& table);
void enterMovesFor8(KernelTable& table);
void enterSumBfloat16For2(KernelTable& table);
void enterSumBfloat16For4(KernelTable& table);
void enterSumBfloat16For8(KernelTable& table);
void enterSumFloat16For2(KernelTable& table);
void enterSumFloat16For4(KernelTable& table);
void enterSumFloat16For8(KernelTable& table);
void enterSumFloat32For2(KernelTable& table);
void enterSumFloat32For4(KernelTable& table);
void enterSumFloat32For8(KernelTable& table);
#endif

}  // namespace MSCCLPP_BACKEND

void enterKernels(KernelTable& table, MachineTag<kernelDevice>) {
  enterAllReduceOthersBfloat16(table);
  enterAllReduceOthersFloat32(table);
  enterAllReduceOthersInt32(table);
  enterAllReduceSumFloat16Bfloat16(table);
  enterAllReduceSumFloat32Float64(table);
  enterAllReduceSumFloat8(table);
  enterAllReduceSumInt32(table);
  enterAllReduceSumInt64(table);
  enterAllReduceSumInt8(table);
  enterMessages(table);
  enterMoves(table);
  enterSumFloat16Bfloat16(table);
  enterSumFloat32Float64(table);
  enterSumFloat8(table);
  enterSumIntegers(table);
  enterOthersBfloat16(table);
  enterOthersFloat32(table);
  enterOthersInt32(table);
  enterSwitchMoves(table);
  enterSwitchFloats(table);
  enterSwitchSmallFloats(table);
  enterSwitchIntegers(table);
#if defined(MSCCLPP_COLLECTIVES_FIXED_RANKS)
  enterAllReduceSumBfloat16ByRanks(table);
  enterAllReduceSumFloat16ByRanks(table);
  enterAllReduceSumFloat32ByRanks(table);
  enterMovesFor2(table);
  enterMovesFor4(table);
  enterMovesFor8(table);
  enterSumBfloat16For2(table);
  enterSumBfloat16For4(table);
  enterSumBfloat16For8(table);
  enterSumFloat16For2(table);
  enterSumFloat16For4(table);
  enterSumFloat16For8(table);
  enterSumFloat32For2(table);
  enterSumFloat32For4(table);
  enterSumFloat32For8(table);
#endif
}

}  // namespace mscclpp::collectives_impl
