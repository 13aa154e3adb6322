// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/checker/shadow.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace mscclpp::sim;

namespace {

constexpr std::uintptr_t base = std::uintptr_t{1} << 40;

}  // namespace

TEST_CASE("only memory that is followed has cells") {
  std::set<std::uintptr_t> pages{base / Shadow::pageBytes};
  Shadow shadow([&](std::uintptr_t page) { return pages.contains(page); });
  auto* const cell = shadow.find(base + 17);
  REQUIRE(cell != nullptr);
  CHECK(shadow.find(base + 16) == cell);
  CHECK(shadow.find(base + 23) == cell);
  CHECK(shadow.find(base + 24) == cell + 1);
  CHECK(shadow.find(base + Shadow::pageBytes) == nullptr);

  SUBCASE("what is followed later is found once that is said") {
    pages.insert(base / Shadow::pageBytes + 1);
    shadow.invalidate();
    CHECK(shadow.find(base + Shadow::pageBytes) != nullptr);
  }
  SUBCASE("forgotten memory starts empty") {
    cell->count = 2;
    shadow.overflow(*cell).push_back({});
    shadow.forget(base, 1);
    auto* const again = shadow.find(base + 17);
    CHECK(again->count == 0);
    CHECK(!shadow.hasOverflow(*again));
  }
}

TEST_CASE("pages whose addresses share a place in the cache do not mix") {
  Shadow shadow([](std::uintptr_t) { return true; });
  auto const far = base + 4096 * Shadow::pageBytes;
  shadow.find(base)->count = 1;
  shadow.find(far)->count = 2;
  CHECK(shadow.find(base)->count == 1);
  CHECK(shadow.find(far)->count == 2);
}

// What the checker itself calls, such as memset for new cells, is heard by its hooks in the midst of a look.
TEST_CASE("a look within a look does not mix pages that share a place in the cache") {
  Shadow* itself = nullptr;
  auto const far = base + 4096 * Shadow::pageBytes;
  Shadow shadow([&](std::uintptr_t page) {
    if (page == base / Shadow::pageBytes) itself->find(far);
    return page == base / Shadow::pageBytes;
  });
  itself = &shadow;
  CHECK(shadow.find(base) != nullptr);
  CHECK(shadow.find(far) == nullptr);
  CHECK(shadow.find(base) != nullptr);
}

TEST_CASE("memory for cells is bounded") {
  constexpr std::size_t limit = 100;
  constexpr std::size_t pages = 150;
  Shadow shadow([](std::uintptr_t) { return true; }, limit);
  auto* const kept = shadow.find(base);
  kept->count = 1;
  kept->words = 1;  // ordered accesses are not forgotten
  for (std::size_t i = 1; i < pages; ++i) shadow.find(base + i * Shadow::pageBytes)->count = 1;
  CHECK(shadow.forgotten() == pages - limit);
  CHECK(shadow.find(base)->words == 1);
}
