// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces in one exchange whose payloads carry their flags.
#include "kill_collective.hpp"
#include "support/epilogue.hpp"

using namespace mscclpp_test;

TEST_CASE("one-shot by packets") {
  exploreAlgorithm<"oneshot_ll16">();
  exploreAlgorithm<"oneshot_ll128">();
  explored<"oneshot_ll8", float>({.ranks = 3, .counts = {250, 1, 250}, .blocks = 2, .threads = 64, .regionBytes = 512});
}

TEST_CASE("launches that overlap") { exploreOverlap<"oneshot_ll16">(); }

TEST_CASE("one kernel, different counts") { exploreCounts<"oneshot_ll16">(); }

TEST_CASE("no elements") {
  exploreEmpty<"oneshot_ll16">();
  exploreEmpty<"oneshot_memory">();
}

// Lines move in whole warps: the threads of an incomplete last one must not come between, whatever they could carry.
TEST_CASE("LL128 in a block that ends in the middle of a warp") {
  for (unsigned threads : {40u, 44u}) {
    everySchedule(2, [&](Rank& rank) {
      using Collective = AllReduce<OneShot, PacketTransport<LL128, 2>, Sum>;
      checkRank<Collective, float, Sum>(rank, {.ranks = 2, .counts = {500, 40}, .blocks = 2, .threads = threads});
    });
  }
}

TEST_CASE("no epilogue is asked for an index past the end") {
  checkEpilogueIndices<AllReduce<OneShot, PacketTransport<LL8>, Sum>,
                       AllReduce<OneShot, PacketTransport<LL128>, Sum>>();
}
