// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products in tiles between an all-gather and a reduce-scatter: nothing to find, whatever the schedule, and what goes
// wrong where a tile is taken before its flag, or its flag goes out before it.
#include <doctest/doctest.h>

#include <functional>

#include "check/harness.hpp"
#include "check/sweep.hpp"
#include "support/tile_products.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

// A tile of each of two ranks. Small: the simulated machine makes all sums of a tile, whatever its rows and columns.
constexpr ProductCase two{.rows = 5, .inner = 9, .columns = 7, .blocks = 1, .rounds = 2};

void checkMistake(Expected const& expected, std::function<void(Rank&)> const& wrong) {
  checkFound(expected, {}, wrong, productSource());
}

}  // namespace

TEST_CASE("all-gather and product in tiles") {
  sweep(2, [](Rank& rank, std::uint64_t) { runGatherTileProduct<128>(rank, two); });
}

TEST_CASE("product in tiles and reduce-scatter") {
  sweep(2, [](Rank& rank, std::uint64_t) { runTileProductScatter<128>(rank, two); });
}

// Five steps of one tile and then of another, in four stages.
TEST_CASE("stages are used again") {
  sweep(1, [](Rank& rank, std::uint64_t) {
    runTileProductScatter<128>(rank, {.rows = 129, .inner = 264, .columns = 3, .blocks = 1});
  });
}

TEST_CASE("a tile's rows are loaded before their flag") {
  checkMistake({FindingKind::race, {"moved rows", "tile read"}},
               [](Rank& rank) { runGatherTileProduct<128, ProductMistake::noGate>(rank, two); });
}

TEST_CASE("a tile's flag goes out before its sums") {
  checkMistake({FindingKind::race, {"tile part", "tile fold"}},
               [](Rank& rank) { runTileProductScatter<128, ProductMistake::arriveEarly>(rank, two); });
}

TEST_CASE("a slot is written that its owner still adds up") {
  checkMistake({FindingKind::race, {"tile part", "tile fold"}},
               [](Rank& rank) { runTileProductScatter<128, ProductMistake::noReady>(rank, two); });
}
