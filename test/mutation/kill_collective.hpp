// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One algorithm under many schedules, in the small shapes that reach each of its branches.
#pragma once

#include "check/shipped.hpp"
#include "explored.hpp"
#include "support/allreduce.hpp"

namespace mscclpp_test {

template <AllReduceAlgorithm A, class T, int Ranks = 0>
void explored(AllReduceCase const& test, int schedules = 5) {
  CAPTURE(name(A));
  everySchedule(
      test.ranks, [&](Rank& rank) { checkRank<AllReduceOf<A, Sum, Ranks>, T, Sum>(rank, test); }, schedules);
}

// Launches that overlap: none is awaited before the next. Blocks have data, have none, and have some again; a call
// takes a second round for a few threads only; one has nothing to do.
template <AllReduceAlgorithm A>
void exploreOverlap() {
  check_test::CallSequence const sequence{{{120, 0, false, 2},
                                           {9, 0, false, 2},
                                           {120, 0, false, 2},
                                           {150, 0, false, 2},
                                           {120, 0, false, 1},
                                           {0, 0, false, 2},
                                           {61, 0, false, 2}},
                                          32,
                                          true,
                                          1024};
  everySchedule(3, [&](Rank& rank) { check_test::allReduceCalls<AllReduceOf<A, Sum>, float>(rank, sequence); });
}

// Several calls of a few elements, in one round and in several; a block that ends in the middle of a warp; a fixed
// number of ranks; misaligned and in place.
template <AllReduceAlgorithm A>
void exploreAlgorithm() {
  explored<A, float>({.ranks = 3, .counts = {250, 1, 250, 700}, .blocks = 2, .threads = 64, .regionBytes = 2048});
  explored<A, float, 3>({.ranks = 3, .counts = {90, 400}, .blocks = 2, .threads = 40, .overlap = true});
  explored<A, BFloat16, 2>(
      {.ranks = 2, .counts = {333, 40}, .blocks = 2, .threads = 64, .inPlace = true, .offset = 1, .regionBytes = 1024});
  explored<A, float>({.ranks = 1, .counts = {100}, .blocks = 2, .threads = 32}, 1);
}

}  // namespace mscclpp_test
