// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fused kernels of tiles: nothing to find, whatever the schedule, and the mistakes that are made in them.
#include <doctest/doctest.h>

#include <functional>
#include <random>

#include "check/harness.hpp"
#include "check/sweep.hpp"
#include "support/fused.hpp"

#include "../examples/gated_attention/attention.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

// Ragged shapes, some with ranks that have no rows; grids that differ; launches that overlap.
FusedCase caseOf(int ranks, std::uint64_t variant) {
  std::mt19937_64 engine(variant * 7321 + static_cast<std::uint64_t>(ranks));
  auto const below = [&](unsigned limit) { return static_cast<unsigned>(engine() % limit); };
  bool const bulkWrites = below(2) == 0;
  bool const bulkReads = below(2) == 0;
  bool const bulk = bulkWrites || bulkReads;
  return {.shape = {.ranks = ranks,
                    .rows = 1 + below(4 * static_cast<unsigned>(ranks)),
                    .inner = bulk ? 8 : 1 + below(9),
                    .columns = bulk ? 8 + 8 * below(2) : 1 + below(20),
                    .tileRows = 1 + below(3),
                    .tileColumns = bulk ? 8 : 1 + below(12),
                    .bulkWrites = bulkWrites,
                    .bulkReads = bulkReads},
          .rounds = 1 + below(3),
          .seed = static_cast<unsigned>(variant),
          .overlap = below(2) == 0,
          .byTicket = below(2) == 0};
}

// Two rounds of two ranks, in which each rank has two tile rows.
FusedCase small(bool bulkWrites, bool bulkReads) {
  return {.shape = {.ranks = 2,
                    .rows = 8,
                    .inner = 8,
                    .columns = 8,
                    .tileRows = 2,
                    .tileColumns = 8,
                    .bulkWrites = bulkWrites,
                    .bulkReads = bulkReads}};
}

// Without the mistake the same program is silent.
void checkMistake(Expected const& expected, std::function<void(Rank&)> const& wrong,
                  std::function<void(Rank&)> const& right) {
  checkFound(expected, {}, wrong, fusedSource());
  checkSilent({.silentSchedules = 50}, right);
}

}  // namespace

TEST_CASE("all-gather and product") {
  for (int ranks : {2, 3, 5, 8}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) { runGatherProduct(rank, caseOf(ranks, variant)); });
  }
}

TEST_CASE("product and reduce-scatter by slots") {
  for (int ranks : {2, 3, 5, 8}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) { runProductScatter(rank, caseOf(ranks, variant)); });
  }
}

TEST_CASE("product and all-reduce by owners in turn") {
  for (int ranks : {2, 3, 5, 8}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) { runProductSum(rank, caseOf(ranks, variant)); });
  }
}

TEST_CASE("attention behind the gate") {
  for (int ranks : {2, 3, 5}) {
    sweep(ranks, [=](Rank& rank, std::uint64_t variant) {
      std::mt19937_64 engine(variant * 7321 + static_cast<std::uint64_t>(ranks));
      auto const below = [&](unsigned limit) { return static_cast<unsigned>(engine() % limit); };
      gated_attention::run<32>(rank.communicator, {.tokens = 1 + below(12 * static_cast<unsigned>(ranks)),
                                                   .movers = 1 + below(2),
                                                   .blocks = 1 + below(3),
                                                   .threads = 64 + 32 * below(2),
                                                   .rounds = 1 + below(2)});
    });
  }
}

TEST_CASE("a tile's flag overtakes its bulk store, of which only the source has been read") {
  auto const test = small(true, false);
  checkMistake(
      {FindingKind::race, {"bulk mover write", "gate read"}},
      [&](Rank& rank) { runGatherProduct<Mistake::waitRead>(rank, test); },
      [&](Rank& rank) { runGatherProduct(rank, test); });
  checkMistake(
      {FindingKind::race, {"bulk part", "fold"}}, [&](Rank& rank) { runProductScatter<Mistake::waitRead>(rank, test); },
      [&](Rank& rank) { runProductScatter(rank, test); });
}

TEST_CASE("a tile is awaited without acquire") {
  auto const test = small(false, false);
  checkMistake(
      {FindingKind::race, {"mover write", "gate read"}},
      [&](Rank& rank) { runGatherProduct<Mistake::relaxedAwait>(rank, test); },
      [&](Rank& rank) { runGatherProduct(rank, test); });
}

TEST_CASE("bulk loads of an awaited tile without a fence between") {
  auto const test = small(false, true);
  checkMistake(
      {FindingKind::missingProxyFence, {"mover write", "bulk gate read"}},
      [&](Rank& rank) { runGatherProduct<Mistake::noFence>(rank, test); },
      [&](Rank& rank) { runGatherProduct(rank, test); });
}

TEST_CASE("a peer's memory is written that may still be read") {
  auto const test = small(false, false);
  checkMistake(
      {FindingKind::race, {"gate read", "mover write"}},
      [&](Rank& rank) { runGatherProduct<Mistake::noReady>(rank, test); },
      [&](Rank& rank) { runGatherProduct(rank, test); });
  checkMistake(
      {FindingKind::race, {"fold", "part"}}, [&](Rank& rank) { runProductScatter<Mistake::noReady>(rank, test); },
      [&](Rank& rank) { runProductScatter(rank, test); });
}

TEST_CASE("a tile's flag goes out before all threads have written") {
  auto const test = small(false, false);
  checkMistake(
      {FindingKind::race, {"mover write", "gate read"}},
      [&](Rank& rank) { runGatherProduct<Mistake::arriveEarly>(rank, test); },
      [&](Rank& rank) { runGatherProduct(rank, test); });
}

TEST_CASE("the residual is read before the layer that adds to it has ended") {
  auto test = small(false, false);
  test.overlap = true;
  checkMistake(
      {FindingKind::race, {"layer", "early residual"}},
      [&](Rank& rank) { runProductScatter<Mistake::residualEarly>(rank, test); },
      [&](Rank& rank) { runProductScatter(rank, test); });
}
