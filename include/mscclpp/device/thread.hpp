// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Threads of the machine this translation unit is compiled for: indices, barriers, shuffles, votes, block memory.
// Only groups (group.hpp) and the device layer itself should need it; algorithms take a group.
#pragma once

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/thread.hpp"
#else
#include "mscclpp/device/arch/sim/thread.hpp"
#endif
