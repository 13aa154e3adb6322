// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names, choices and shapes; all of it at compile time.
#include "mscclpp/algorithms/tuning.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string_view>

using namespace mscclpp;
using enum AllReduceAlgorithm;

static_assert(allReduceByName("twoshot_ll128") == twoShotLL128 && !allReduceByName("ring").has_value());
static_assert(needsWholeLines(oneShotLL128) && !needsWholeLines(twoShotMemoryWide));
static_assert(canCarry<oneShotLL16>(8) && !canCarry<oneShotLL8>(8));

// Measured on 4 H200 with whole lines.
static_assert(chooseAllReduce(4, 1024, 2, true).algorithm == oneShotLL16);
static_assert(chooseAllReduce(4, 65536, 2, true).algorithm == oneShotLL128);
static_assert(chooseAllReduce(4, 1 << 20, 2, true).algorithm == twoShotLL128);
static_assert(chooseAllReduce(4, 16 << 20, 2, true).algorithm == twoShotMemory);
static_assert(chooseAllReduce(4, 1 << 30, 2, true).algorithm == twoShotMemoryWide);

TEST_CASE("names are distinct and found again") {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < allReduceNames.size(); ++i) {
    auto const algorithm = static_cast<AllReduceAlgorithm>(i);
    CHECK(seen.insert(name(algorithm)).second);
    CHECK(allReduceByName(name(algorithm)) == algorithm);
    CHECK(withAllReduce(algorithm, [&]<AllReduceAlgorithm A>() { return A == algorithm; }));
  }
}

TEST_CASE("every choice can be launched, carries the type and avoids lines where they may tear") {
  for (std::uint32_t ranks : {1u, 2u, 3u, 4u, 8u, 72u}) {
    for (std::uint64_t bytes = 0; bytes <= (std::uint64_t{1} << 33); bytes = bytes * 3 + 1) {
      for (bool wholeLines : {false, true}) {
        for (std::size_t element : {1u, 4u, 8u}) {
          auto const choice = chooseAllReduce(ranks, bytes, element, wholeLines, 100);
          CAPTURE(ranks);
          CAPTURE(bytes);
          CHECK(choice.blocks >= 1);
          CHECK(choice.blocks <= 100);
          CHECK(choice.threads % 32 == 0);
          CHECK(choice.threads <= 512);
          CHECK((wholeLines || !needsWholeLines(choice.algorithm)));
          CHECK(withAllReduce(choice.algorithm, [&]<AllReduceAlgorithm A>() { return canCarry<A>(element); }));
        }
      }
    }
  }
}
