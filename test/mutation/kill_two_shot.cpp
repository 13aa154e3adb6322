// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces in two exchanges whose payloads carry their flags.
#include "kill_collective.hpp"
#include "support/epilogue.hpp"

using namespace mscclpp_test;
using enum AllReduceAlgorithm;

TEST_CASE("two-shot by packets") {
  exploreAlgorithm<twoShotLL16>();
  exploreAlgorithm<twoShotLL128>();
}

TEST_CASE("launches that overlap") { exploreOverlap<twoShotLL16>(); }

TEST_CASE("one kernel, different counts") { exploreCounts<twoShotLL16>(); }

TEST_CASE("no elements") {
  exploreEmpty<twoShotLL16>();
  exploreEmpty<twoShotMemory>();
}

TEST_CASE("no epilogue is asked for an index past the end") {
  checkEpilogueIndices<AllReduce<TwoShot, PacketTransport<LL16>, Sum>,
                       AllReduce<TwoShot, PacketTransport<LL128>, Sum>>();
}
