// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-to-all of parts that lie strewn, there and back in one kernel: nothing to find, whatever the schedule.
#include "support/strided.hpp"

#include <doctest/doctest.h>

#include "check/sweep.hpp"

using namespace check_test;
using namespace mscclpp_test;

TEST_CASE("heads and tokens change places") {
  for (int ranks : {2, 3, 8}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      StridedShape const shape{.ranks = ranks,
                               .batch = 1 + variant % 3,
                               .tokens = 1 + variant % 4,
                               .heads = 1 + variant % 2,
                               .width = variant % 2 == 0 ? 8u : 5u,
                               .offset = variant % 3};
      checkStridedRank<std::uint16_t>(rank, shape);
    });
  }
}
