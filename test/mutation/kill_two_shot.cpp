// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces in two exchanges whose payloads carry their flags.
#include "kill_collective.hpp"
#include "support/epilogue.hpp"

using namespace mscclpp_test;

TEST_CASE("two-shot by packets") {
  exploreAlgorithm<"twoshot_ll16">();
  exploreAlgorithm<"twoshot_ll128">();
}

TEST_CASE("launches that overlap") { exploreOverlap<"twoshot_ll16">(); }

TEST_CASE("one kernel, different counts") { exploreCounts<"twoshot_ll16">(); }

TEST_CASE("no elements") {
  exploreEmpty<"twoshot_ll16">();
  exploreEmpty<"twoshot_memory">();
}

TEST_CASE("no epilogue is asked for an index past the end") {
  checkEpilogueIndices<AllReduce<TwoShot, PacketTransport<LL16>, Sum>,
                       AllReduce<TwoShot, PacketTransport<LL128>, Sum>>();
}
