// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Right programs are accepted, at compile time and at run time.
#include <doctest/doctest.h>

#include <utility>

#include "dsl/programs.hpp"

using namespace dsl_test;

static_assert(dsl::verify<SimpleAllGather>());
static_assert(dsl::verify<RingAllGather<4>>());
static_assert(dsl::verify<TwoShotPackets<4>>());

namespace {

template <class P>
void checkRight() {
  auto const program = dsl::build<P>();
  auto const verdict = dsl::verify(program);
  CHECK_MESSAGE(verdict.right(), program.name.str(), ": ", verdict.story.str());
}

}  // namespace

TEST_CASE("right programs are accepted, whatever the number of ranks") {
  checkRight<SimpleAllGather>();
  checkRight<TwoLevelReduceScatter>();
  checkRight<PipelinedSendReceive>();
  // 2 ranks make rings too, but their channels to and from each other would have to be made in another order.
  checkRight<RingAllGather<3>>();
  checkRight<RingAllGather<8>>();
  checkRight<RingAllGather<17>>();
  [&]<int... Ranks>(std::integer_sequence<int, Ranks...>) {
    (checkRight<AllPairsAllGather<Ranks + 2>>(), ...);
    (checkRight<OneShotPackets<Ranks + 2>>(), ...);
    (checkRight<TwoShotPackets<Ranks + 2>>(), ...);
    (checkRight<PullPushAllReduce<Ranks + 2>>(), ...);
    (checkRight<ScratchAllToAll<Ranks + 2>>(), ...);
  }
  (std::make_integer_sequence<int, 7>{});
}

TEST_CASE("their instances are right") {
  checkRight<AllPairsAllGather<5, 2>>();
  checkRight<TwoShotPackets<8, 4>>();
  checkRight<PullPushAllReduce<8, 2>>();
}

TEST_CASE("what a verdict says besides") {
  CHECK(!dsl::verify(dsl::build<TwoShotPackets<4>>()).needsEvenChunks);
  CHECK(dsl::verify(dsl::build<TwoShotPackets<4>>()).canAverage);
  // A chunk of one place put where another belongs.
  dsl::Builder builder({.name = "swapped", .collective = dsl::custom(1, 2, 2)});
  auto const rank = builder.rank(0);
  rank.copy(rank.output()[0], rank.input()[1]);
  CHECK(dsl::verify(dsl::finish(builder)).needsEvenChunks);
}
