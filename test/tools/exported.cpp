// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simplest shared object that mscclpp-check takes.
#include "mscclpp/sim/run.hpp"

extern "C" void mscclppCheck(mscclpp::sim::RankContext&);
extern "C" void mscclppCheck(mscclpp::sim::RankContext&) {}
