// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "checker.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <span>
#include <vector>

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

template <class T>
Expected exactly(std::vector<T> const& values) {
  Expected expected{elementTypeOf<T>(), std::vector<std::byte>(values.size() * sizeof(T)), {}};
  std::memcpy(expected.block.data(), values.data(), expected.block.size());
  return expected;
}

template <class T>
std::uint64_t wrongIn(std::vector<T> const& actual, Expected const& expected, std::uint64_t first = 0) {
  return countWrong(std::as_bytes(std::span(actual)), first, expected);
}

}  // namespace

TEST_CASE("a right result has no wrong element, whatever part of it is looked at") {
  auto const expected = exactly<float>({1, 2, 3, 4, 5});
  CHECK(wrongIn<float>({1, 2, 3, 4, 5}, expected) == 0);
  CHECK(wrongIn<float>({1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2}, expected) == 0);
  CHECK(wrongIn<float>({4, 5, 1, 2, 3, 4, 5, 1}, expected, 8) == 0);
}

TEST_CASE("every corrupted element is counted once") {
  std::vector<std::int32_t> block(1001);
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::int32_t>(i);
  auto const wanted = exactly(block);
  std::vector<std::int32_t> actual;
  for (int repetition = 0; repetition < 5; ++repetition) actual.insert(actual.end(), block.begin(), block.end());
  REQUIRE(wrongIn(actual, wanted) == 0);
  actual[0] ^= 1;
  actual[1000] = ~actual[1000];
  actual[1001] = 77;
  actual.back() += 1;
  CHECK(wrongIn(actual, wanted) == 4);
  // Looked at one place further on nothing fits, but for the first element, which was made to be the second's.
  CHECK(wrongIn(actual, wanted, 1) == actual.size() - 1);
}

TEST_CASE("an element that moved by one place is seen") {
  auto const block = checkedBlock(ElementType::bfloat16, Operation::sum, 3, 0, 4099);
  Expected const expected{ElementType::bfloat16, block, {}};
  CHECK(countWrong(block, 0, expected) == 0);
  CHECK(countWrong(block, 1, expected) > 3000);
}

TEST_CASE("a result that was never written is wrong") {
  for (auto type : elementTypes) {
    CAPTURE(name(type));
    auto const expected = expectedBlock(type, Operation::sum, 11, 4, 1000);
    std::vector<std::byte> const poison(expected.block.size(), std::byte{poisonByte});
    CHECK(countWrong(poison, 0, expected) > 900);
  }
}

TEST_CASE("signs of zero and payloads of NaN count where bits must agree") {
  auto const expected = exactly<float>({0.0f, std::numeric_limits<float>::quiet_NaN()});
  CHECK(wrongIn<float>({0.0f, std::numeric_limits<float>::quiet_NaN()}, expected) == 0);
  CHECK(wrongIn<float>({-0.0f, std::numeric_limits<float>::signaling_NaN()}, expected) == 2);
}

TEST_CASE("slack allows a difference up to its size and never NaN") {
  auto expected = exactly<float>({1.0f, 1.0f, 1.0f, 1.0f});
  expected.slack = {0.25f, 0.25f, 0.25f, 0.25f};
  CHECK(wrongIn<float>({1.0f, 1.25f, 0.75f, 1.1f}, expected) == 0);
  CHECK(wrongIn<float>({1.0f, 1.3f, 0.7f, 1.1f}, expected) == 2);
  CHECK(wrongIn<float>({1.0f, std::numeric_limits<float>::quiet_NaN(), 1.0f, -1.0f}, expected) == 2);
}

TEST_CASE("writes past the end are seen") {
  std::vector<std::byte> guard(256, std::byte{poisonByte});
  CHECK(countTouched(guard) == 0);
  guard[255] = std::byte{0};
  guard[7] = std::byte{0xff};
  CHECK(countTouched(guard) == 2);
}
