// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When the compiler works values out. Both are the same value, and cost nothing.
//
// arch::notEarlier(value): nothing is worked out from it earlier than at the call, so loads that are begun before that
// do not wait for it. For a word that is loaded ahead of others and needed behind them, such as the number of a call in
// the flags of its packets.
//
// arch::notAnew(value): is worked out here and kept, not once more wherever it is used. For what a loop's every turn
// needs: nvcc saves registers by instructions, of which a loop over packets has none to spare.
#pragma once

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/pending.hpp"
#else
#include "mscclpp/device/arch/sim/pending.hpp"
#endif
