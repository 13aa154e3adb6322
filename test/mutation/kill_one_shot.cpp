// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces in one exchange whose payloads carry their flags.
#include "kill_collective.hpp"

using namespace mscclpp_test;
using enum AllReduceAlgorithm;

TEST_CASE("one-shot by packets") {
  exploreAlgorithm<oneShotLL16>();
  exploreAlgorithm<oneShotLL128>();
  explored<oneShotLL8, float>({.ranks = 3, .counts = {250, 1, 250}, .blocks = 2, .threads = 64, .regionBytes = 512});
}

TEST_CASE("launches that overlap") { exploreOverlap<oneShotLL16>(); }
