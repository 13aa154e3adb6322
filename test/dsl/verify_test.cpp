// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Right programs are accepted, at compile time and at run time.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "dsl/channel_programs.hpp"
#include "dsl/programs.hpp"

using namespace dsl_test;

static_assert(dsl::verify<SimpleAllGather>());
static_assert(dsl::verify<RingAllGather<4>>());
static_assert(dsl::verify<TwoShotPackets<4>>());
static_assert(dsl::verify<TwoLevelReduceScatter>());
static_assert(dsl::verify<PipelinedSendReceive>());
static_assert(dsl::verify<CrossingBarriers>());
static_assert(dsl::verify<PartlyInTurns>());

// Compilers look at every access that the verifier makes, also on its way to a diagnostic.
constexpr bool saysWhoNeverSends() {
  dsl::Builder builder({.name = "unanswered",
                        .collective = dsl::custom(2, 1, 1),
                        .protocol = dsl::Protocol::lowLatency,
                        .doubleScratch = true});
  auto const scratch = builder.rank(1).scratch(1);
  builder.rank(1).unpackPackets(builder.rank(1).output()[0], scratch[0]);
  builder.rank(0).copy(builder.rank(0).output()[0], builder.rank(0).input()[0]);
  return dsl::verify(dsl::finish(builder)).diagnostic.view().ends_with("which never comes");
}
static_assert(saysWhoNeverSends());
constexpr bool saysWhatIsMixed() {
  dsl::Builder builder({.name = "mixed", .collective = dsl::custom(1, 3, 1), .fuse = false});
  auto const rank = builder.rank(0);
  rank.reduce(rank.output()[0], rank.input()[0], {rank.input()[1]}, {.reduce = dsl::ReduceKind::max});
  rank.reduce(rank.output()[0], rank.output()[0], {rank.input()[2]}, {.reduce = dsl::ReduceKind::sum});
  return dsl::verify(dsl::finish(builder)).diagnostic.view().ends_with("reduces by sum what was reduced by max");
}
static_assert(saysWhatIsMixed());
static_assert(dsl::verify<PortPackets>());

namespace {

template <class P>
void checkRight() {
  auto const program = dsl::build<P>();
  auto const verdict = dsl::verify(program);
  CHECK_MESSAGE(verdict.right(), program.name.str(), ": ", verdict.diagnostic.str());
}

}  // namespace

TEST_CASE("right programs are accepted, whatever the number of ranks") {
  checkRight<SimpleAllGather>();
  checkRight<TwoLevelReduceScatter>();
  checkRight<PipelinedSendReceive>();
  checkRight<CrossingBarriers>();
  checkRight<PartlyInTurns>();
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
  // The same place of buffers that are cut into different numbers of chunks.
  dsl::Builder cut({.name = "cut", .collective = dsl::custom(1, 2, 4)});
  cut.rank(0).copy(cut.rank(0).output()[0], cut.rank(0).input()[0]);
  CHECK(dsl::verify(dsl::finish(cut)).needsEvenChunks);
}

TEST_CASE("which steps make all of a result") {
  // Twice two ranks' contributions are all, three are not.
  dsl::Builder builder({.name = "concludes", .collective = dsl::custom(2, 2, 2), .fuse = false});
  auto const rank = builder.rank(0);
  auto const scratch = rank.scratch(2);
  rank.copy(scratch[0], rank.input()[0]);
  rank.reduce(scratch[1], rank.input()[0], {rank.input()[1]});
  rank.reduce(rank.output()[0], rank.input()[0], {scratch[0]});
  rank.reduce(rank.output()[1], rank.input()[1], {scratch[1]});
  builder.rank(1).copy(builder.rank(1).output()[0], builder.rank(1).input()[0]);
  auto const reductionsOf = [](dsl::Program const& program) {
    auto const verdict = dsl::verify(program);
    REQUIRE_MESSAGE(verdict.right(), verdict.diagnostic.str());
    std::vector<dsl::detail::Reduces> found;
    std::size_t next = 0;
    for (auto const& each : program.ranks) {
      for (auto const& block : each.blocks) {
        for (auto const& step : block.steps) {
          auto const reduces = verdict.reductions.at(next++);
          if (step.kind == dsl::StepKind::move) found.push_back(reduces);
        }
      }
    }
    return found;
  };
  using enum dsl::detail::Reduces;
  auto program = dsl::finish(builder);
  CHECK(reductionsOf(program) == std::vector{none, all, all, part, none});
  CHECK(dsl::verify(program).canAverage);

  // One step that does both.
  dsl::Builder together({.name = "together", .collective = dsl::custom(2, 2, 2), .fuse = false});
  auto const self = together.rank(0);
  auto const held = self.scratch(2);
  self.copy(held[0], self.input()[0]);
  self.reduce(held[1], self.input()[0], {self.input()[1]});
  self.reduce(self.output()(0, 2), self.input()(0, 2), {held(0, 2)});
  program = dsl::finish(together);
  CHECK(reductionsOf(program) == std::vector{none, all, both});
  CHECK(!dsl::verify(program).canAverage);

  // One step that does the same for two chunks.
  dsl::Builder alike({.name = "alike", .collective = dsl::custom(2, 2, 2), .fuse = false});
  auto const one = alike.rank(0);
  auto const kept = one.scratch(2);
  one.copy(kept(0, 2), one.input()(0, 2));
  one.reduce(one.output()(0, 2), one.input()(0, 2), {kept(0, 2)});
  program = dsl::finish(alike);
  CHECK(reductionsOf(program) == std::vector{none, all});
}

TEST_CASE("what was copied may be reduced by any operation") {
  dsl::Builder builder({.name = "copied", .collective = dsl::custom(1, 2, 1), .fuse = false});
  auto const rank = builder.rank(0);
  auto const scratch = rank.scratch(1);
  rank.copy(scratch[0], rank.input()[0]);
  rank.reduce(rank.output()[0], scratch[0], {rank.input()[1]}, {.reduce = dsl::ReduceKind::max});
  CHECK(dsl::verify(dsl::finish(builder)).diagnostic.view() == "");
}

TEST_CASE("who relies on packets to have read what is written again") {
  CHECK(!dsl::verify(dsl::build<SimpleAllGather>()).reliesOnPackets);
  CHECK(!dsl::verify(dsl::build<PipelinedSendReceive>()).reliesOnPackets);
  CHECK(!dsl::verify(dsl::build<TwoShotPackets<4>>()).reliesOnPackets);
  // Rank 1 takes rank 0's input and answers by a packet; then rank 0's caller writes the input.
  dsl::Builder builder({.name = "answered",
                        .collective = dsl::custom(2, 1, 1),
                        .protocol = dsl::Protocol::lowLatency,
                        .doubleScratch = true});
  auto const toTaker = builder.memoryChannel(1, 0), toGiver = builder.memoryChannel(0, 1);
  auto const answers = builder.rank(0).scratch(1);
  toTaker.signal({.relaxed = true});
  toGiver.wait({.relaxed = true});
  toGiver.get(builder.rank(1).output()[0], builder.rank(0).input()[0]);
  builder.rank(1).sync(0);
  toGiver.putPackets(answers[0], builder.rank(1).input()[0]);
  builder.rank(0).unpackPackets(builder.rank(0).output()[0], answers[0]);
  auto const verdict = dsl::verify(dsl::finish(builder));
  CHECK_MESSAGE(verdict.right(), verdict.diagnostic.str());
  CHECK(verdict.reliesOnPackets);
}
