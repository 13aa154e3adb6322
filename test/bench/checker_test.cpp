// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "data/checker.hpp"

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
  Expected expected{dataTypeOf<T>(), std::vector<std::byte>(values.size() * sizeof(T)), {}};
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
  auto const block = checkedBlock(DataType::bfloat16, ReduceOp::sum, 3, 0, 4099);
  Expected const expected{DataType::bfloat16, block, {}};
  CHECK(countWrong(block, 0, expected) == 0);
  CHECK(countWrong(block, 1, expected) > 3000);
}

TEST_CASE("a result that was never written is wrong") {
  for (auto type : dataTypes) {
    CAPTURE(nameOf(type));
    auto const expected = expectedBlock(type, ReduceOp::sum, 11, 4, 1000);
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

TEST_CASE("every slot of a buffer is compared with what belongs there") {
  constexpr std::uint64_t slotCount = 301;
  constexpr int ranks = 3;
  auto const answers = answersFor(DataType::float32, ReduceOp::sum, 5, ranks, slotCount * ranks);
  using Kind = Content::Kind;
  std::vector<Content> const contents{{Kind::input, 2, 1}, {Kind::poison, 0, 0}, {Kind::reduced, 0, 2}, {}};
  auto const slot = [&](Expected const& from, std::uint64_t index) {
    auto const size = slotCount * 4;
    return std::vector<std::byte>(from.block.begin() + static_cast<std::ptrdiff_t>(index * size),
                                  from.block.begin() + static_cast<std::ptrdiff_t>((index + 1) * size));
  };
  auto buffer = slot(answers.inputs[2], 1);
  std::vector<std::byte> const poison(slotCount * 4, std::byte{poisonByte});
  for (auto const& part : {poison, slot(answers.reduced, 2), slot(answers.inputs[0], 0)}) {
    buffer.insert(buffer.end(), part.begin(), part.end());
  }
  auto const wrong = [&](std::uint64_t first = 0) {
    return countWrong(std::span(buffer).subspan(first * 4), first, contents, slotCount, answers, false);
  };
  CHECK(wrong() == 0);
  CHECK(wrong(slotCount - 7) == 0);
  for (std::uint64_t element : {std::uint64_t{0}, slotCount, 2 * slotCount + 1}) buffer[element * 4] ^= std::byte{1};
  CHECK(wrong() == 3);
  CHECK(wrong(1) == 2);
  // Whose content nobody knows.
  buffer.back() ^= std::byte{1};
  CHECK(wrong() == 3);
  auto const swapped = std::vector<Content>{contents[1], contents[0], contents[2], contents[3]};
  CHECK(countWrong(buffer, 0, swapped, slotCount, answers, false) > 2 * slotCount - 5);
}

TEST_CASE("writes past the end are seen") {
  std::vector<std::byte> guard(256, std::byte{poisonByte});
  CHECK(countTouched(guard) == 0);
  guard[255] = std::byte{0};
  guard[7] = std::byte{0xff};
  CHECK(countTouched(guard) == 2);
}
