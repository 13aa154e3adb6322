// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program for mscclpp-check.
#include "increment.hpp"

#include <mscclpp/sim/run.hpp>

#if defined(CONSUMER_RACE)
constexpr bool race = true;
#else
constexpr bool race = false;
#endif

extern "C" void mscclppCheck(mscclpp::sim::RankContext& rank) { increment(rank.device(), race); }
