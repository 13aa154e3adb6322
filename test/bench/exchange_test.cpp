// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/exchange.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "plan/options.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

using Kind = Content::Kind;
using enum Collective;

Content input(int rank, int slot) { return {Kind::input, rank, slot}; }
Content reducedSlot(int slot) { return {Kind::reduced, 0, slot}; }
constexpr Content poison{Kind::poison, 0, 0};

// Buffer 1 of `rank` after one operation that read buffer 0.
std::vector<Content> afterOne(Collective collective, int rank, int ranks = 3) {
  ExchangeModel model(collective, false, ranks);
  model.poison(1);
  model.run(0);
  return model.contents(rank, 1);
}

}  // namespace

TEST_CASE("one operation puts what the collective means where it says") {
  using Contents = std::vector<Content>;
  CHECK(afterOne(allReduce, 1) == Contents{reducedSlot(0)});
  // Each rank contributes the slot behind its own.
  CHECK(afterOne(allGather, 1) == Contents{input(0, 1), input(1, 2), input(2, 0)});
  CHECK(afterOne(reduceScatter, 1) == Contents{poison, poison, reducedSlot(1)});
  CHECK(afterOne(allToAll, 1) == Contents{input(0, 1), input(1, 1), input(2, 1)});
  CHECK(afterOne(broadcast, 2) == Contents{input(0, 0)});
  CHECK(afterOne(reduce, 0) == Contents{reducedSlot(0)});
  CHECK(afterOne(reduce, 1) == Contents{poison});
  CHECK(afterOne(gather, 0) == Contents{input(0, 1), input(1, 2), input(2, 0)});
  CHECK(afterOne(gather, 2) == Contents{poison, poison, poison});
  CHECK(afterOne(scatter, 1) == Contents{poison, poison, input(0, 1)});
}

TEST_CASE("in place, input and output lie as the collective allows it") {
  for (int ranks : {1, 2, 5}) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int index = 0; index < 7; ++index) {
        auto const of = [&](Collective collective) { return stepOf(collective, true, rank, ranks, index); };
        for (auto collective : {allReduce, broadcast, reduce}) CHECK(of(collective).in == of(collective).out);
        CHECK(of(allGather).in == Place{0, rank, 1});
        CHECK(of(allGather).out == Place{0, 0, ranks});
        CHECK(of(reduceScatter).in == Place{0, 0, ranks});
        CHECK(of(reduceScatter).out == Place{0, rank, 1});
        if (rank == index % ranks) {
          CHECK(of(gather).in == Place{0, rank, 1});
          CHECK(of(scatter).out == Place{0, rank, 1});
        }
      }
    }
  }
  CHECK(!traitsOf(allToAll).inPlace);
}

TEST_CASE("an operation never writes what it reads, out of place") {
  for (auto collective : timedCollectives) {
    for (int index = 0; index < 6; ++index) {
      auto const step = stepOf(collective, false, 1, 4, index);
      CHECK(step.in.buffer == index % 2);
      CHECK(step.out.buffer == 1 - index % 2);
    }
  }
}

TEST_CASE("what peers write into has the same place on all ranks") {
  for (auto collective : {allReduce, allGather, allToAll, broadcast, reduce, gather, scatter}) {
    for (bool inPlace : {false, true}) {
      for (int index = 0; index < 9; ++index) {
        auto const out = stepOf(collective, inPlace, 0, 4, index).out;
        for (int rank = 1; rank < 4; ++rank) CHECK(stepOf(collective, inPlace, rank, 4, index).out == out);
      }
    }
  }
}

TEST_CASE("every operation reads what another rank sent in the one before it") {
  constexpr int ranks = 4;
  for (auto collective : timedCollectives) {
    for (bool inPlace : {false, true}) {
      // In place, an all-gather's own part never changes: its operations depend on each other by their completion only.
      if (inPlace && (!traitsOf(collective).inPlace || collective == allGather)) continue;
      for (int index = 0; index < 8; ++index) {
        CAPTURE(nameOf(collective));
        CAPTURE(index);
        ExchangeModel before(collective, inPlace, ranks);
        before.run(index);
        int readers = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          auto const written = stepOf(collective, inPlace, rank, ranks, index).out;
          auto const next = stepOf(collective, inPlace, rank, ranks, index + 1);
          bool const reads = next.in.buffer == written.buffer && next.in.slot < written.slot + written.slots &&
                             written.slot < next.in.slot + next.in.slots;
          bool const rootReads = collective == broadcast || collective == scatter;
          bool const rootWrites = collective == reduce || collective == gather;
          int const root = index % ranks;
          bool const counts = rootReads ? rank == next.root : rootWrites ? rank == root : true;
          if (!reads || !counts) continue;
          auto const& contents = before.contents(rank, written.buffer);
          bool fromOther = false;
          for (int slot = next.in.slot; slot < next.in.slot + next.in.slots; ++slot) {
            auto const& content = contents.at(static_cast<std::size_t>(slot));
            fromOther = fromOther || content.kind != Kind::input || content.rank != rank;
          }
          CHECK(fromOther);
          ++readers;
        }
        CHECK(readers == (hasRoot(collective) ? 1 : ranks));
      }
    }
  }
}

TEST_CASE("long chains keep moving whole inputs") {
  constexpr int ranks = 5;
  for (auto collective : {allGather, allToAll, broadcast, gather, scatter}) {
    ExchangeModel model(collective, false, ranks);
    for (int index = 0; index < 23; ++index) model.run(index);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int buffer : {0, 1}) {
        auto const& contents = model.contents(rank, buffer);
        CHECK(contents.size() == static_cast<std::size_t>(slotsOf(collective, ranks)));
        CHECK(std::all_of(contents.begin(), contents.end(),
                          [](Content const& content) { return content.kind == Kind::input; }));
      }
    }
  }
  // All-to-all is its own inverse.
  ExchangeModel twice(allToAll, false, ranks);
  twice.run(0);
  twice.run(1);
  for (int slot = 0; slot < ranks; ++slot) {
    CHECK(twice.contents(3, 0)[static_cast<std::size_t>(slot)] == input(3, slot));
  }
}

TEST_CASE("what results of reductions reduce to is not claimed to be known") {
  ExchangeModel model(allReduce, true, 2);
  model.run(0);
  CHECK(model.contents(1, 0)[0] == reducedSlot(0));
  model.run(1);
  CHECK(model.contents(1, 0)[0].kind == Kind::unknown);
}
