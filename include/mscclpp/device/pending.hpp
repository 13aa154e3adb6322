// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values whose load may still be under way. arch::notEarlier(value) is the same value; the compiler works nothing out
// from it earlier than at the call, so loads that are begun before that do not wait for it. For a word that is loaded
// ahead of others and needed behind them, such as the number of a call in the flags of its packets. Costs nothing.
#pragma once

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/pending.hpp"
#else
#include "mscclpp/device/arch/sim/pending.hpp"
#endif
