// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The words in which the parts for CUTLASS refuse.
#include "mscclpp/cutlass/refusal.hpp"

#include <doctest/doctest.h>

using namespace mscclpp;
using detail::refuseFlags;
using detail::refuseRows;

TEST_CASE("rows that are not whole tiles for each rank are refused with the numbers") {
  CHECK(refuseRows("Part", 1024, 4, 128) == "");
  CHECK(refuseRows("Part", 512, 4, 128) == "");
  CHECK(refuseRows("Part", 1, 1, 1) == "");
  CHECK(
      refuseRows("Part", 1000, 4, 128) ==
      "Part: 1000 rows for 4 ranks: each rank's share has to be whole tiles of 128 rows, so that no tile lies with two "
      "owners; pad the rows to a multiple of 512, or take lower tiles");
  // Whole tiles, but not as many for each.
  CHECK(refuseRows("Part", 640, 4, 128) != "");
  CHECK(refuseRows("Part", 0, 4, 128) != "");
  CHECK(refuseRows("Part", -512, 4, 128) != "");
  CHECK(refuseRows("Part", 512, 0, 128) != "");
  // Ranks times rows of a tile are more than an int holds.
  CHECK(refuseRows("Part", std::int64_t{1} << 40, 1 << 20, 1 << 20) == "");
  CHECK(refuseRows("Part", (std::int64_t{1} << 40) + 1, 1 << 20, 1 << 20) != "");
}

TEST_CASE("tile flags that are missing or too few are refused with the numbers") {
  layout::TileFlagsHandle flags{};
  CHECK(refuseFlags("Part", flags, 1) == "Part: its arguments have no tile flags yet");
  flags.size = 4;
  flags.layout.tiles = 16;
  CHECK(refuseFlags("Part", flags, 16) == "");
  CHECK(refuseFlags("Part", flags, 17) == "Part: needs 17 tile flags, these are 16; make TileFlags with more");
}

TEST_CASE("a refusal is thrown as the caller's mistake") {
  CHECK_NOTHROW(detail::demand(""));
  try {
    detail::demand("Part: no");
    FAIL("not thrown");
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::invalidUsage);
    CHECK(std::string(error.what()) == "Part: no");
  }
}
