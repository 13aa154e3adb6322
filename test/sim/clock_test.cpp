// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vector clocks against the plainest possible ones.
#include "sim/memory/clock.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

using mscclpp::sim::Clock;

namespace {

constexpr std::size_t threads = 300;  // several chunks, the last one incomplete
using Plain = std::array<std::uint32_t, threads>;

bool agree(Clock const& clock, Plain const& plain) {
  for (std::uint32_t t = 0; t < threads; ++t) {
    if (plain[t] != 0 && !clock.knows(t, plain[t])) return false;
    if (clock.knows(t, plain[t] + 1)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("an empty clock knows nothing") {
  Clock const clock;
  CHECK(clock.empty());
  CHECK(!clock.knows(0, 1));
  CHECK(!clock.knows(100000, 1));
}

TEST_CASE("a copy does not change with the original") {
  Clock first;
  Clock::Editor(first).set(70, 5);
  auto second = first;
  CHECK(second.same(first));
  Clock::Editor(second).set(70, 9);
  CHECK(first.knows(70, 5));
  CHECK(!first.knows(70, 6));
  CHECK(second.knows(70, 9));
}

TEST_CASE("a join that adds nothing keeps the object") {
  Clock first;
  {
    Clock::Editor editor(first);
    editor.set(1, 4);
    editor.set(200, 2);
  }
  Clock second;
  Clock::Editor(second).set(1, 3);
  auto const before = first;
  first.join(second);
  CHECK(first.same(before));
  first.join(first);
  CHECK(first.same(before));
}

TEST_CASE("random joins and changes agree with plain arrays") {
  std::mt19937 random(7);
  constexpr std::size_t count = 12;
  std::vector<Clock> clocks(count);
  std::vector<Plain> plain(count, Plain{});
  for (int step = 0; step < 3000; ++step) {
    auto const a = random() % count;
    auto const b = random() % count;
    if (random() % 2 == 0) {
      clocks[a].join(clocks[b]);
      for (std::size_t t = 0; t < threads; ++t) plain[a][t] = std::max(plain[a][t], plain[b][t]);
    } else if (random() % 4 == 0) {
      clocks[a] = clocks[b];
      plain[a] = plain[b];
    } else {
      Clock::Editor editor(clocks[a]);
      for (int i = 0; i < 5; ++i) {
        auto const t = static_cast<std::uint32_t>(random() % threads);
        plain[a][t] += static_cast<std::uint32_t>(1 + random() % 3);
        editor.set(t, plain[a][t]);
      }
    }
    REQUIRE(agree(clocks[a], plain[a]));
    REQUIRE(agree(clocks[b], plain[b]));
  }
}
