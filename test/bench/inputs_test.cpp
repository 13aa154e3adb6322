// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "data/inputs.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

template <class T>
std::vector<T> valuesOf(std::vector<std::byte> const& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TEST_CASE("data depends on the seed and on the rank") {
  auto const block = [](std::uint64_t seed, int rank) {
    return checkedBlock(DataType::float32, ReduceOp::sum, seed, rank, 500);
  };
  CHECK(block(1, 0) == block(1, 0));
  CHECK(block(1, 0) != block(2, 0));
  CHECK(block(1, 0) != block(1, 1));
}

TEST_CASE("the expected sum is that of the ranks' inputs, in rank order, rounded once") {
  constexpr int ranks = 5;
  constexpr std::size_t period = 301;
  std::vector<std::vector<BFloat16>> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(valuesOf<BFloat16>(checkedBlock(DataType::bfloat16, ReduceOp::sum, 9, rank, period)));
  }
  auto const expected = expectedBlock(DataType::bfloat16, ReduceOp::sum, 9, ranks, period);
  CHECK(expected.period() == period);
  CHECK(expected.slack.empty());
  auto const results = valuesOf<BFloat16>(expected.block);
  for (std::size_t i = 0; i < period; ++i) {
    float total = static_cast<float>(inputs[0][i]);
    for (std::size_t rank = 1; rank < ranks; ++rank) total += static_cast<float>(inputs[rank][i]);
    REQUIRE(results[i].bits == BFloat16(total).bits);
  }
}

TEST_CASE("integers wrap, minimum and average are what they say") {
  constexpr std::size_t period = 64;
  auto const a = valuesOf<std::uint8_t>(checkedBlock(DataType::uint8, ReduceOp::sum, 4, 0, period));
  auto const b = valuesOf<std::uint8_t>(checkedBlock(DataType::uint8, ReduceOp::sum, 4, 1, period));
  auto const sum = valuesOf<std::uint8_t>(expectedBlock(DataType::uint8, ReduceOp::sum, 4, 2, period).block);
  auto const least = valuesOf<std::uint8_t>(expectedBlock(DataType::uint8, ReduceOp::min, 4, 2, period).block);
  auto const mean = valuesOf<std::uint8_t>(expectedBlock(DataType::uint8, ReduceOp::avg, 4, 2, period).block);
  for (std::size_t i = 0; i < period; ++i) {
    CHECK(sum[i] == static_cast<std::uint8_t>(a[i] + b[i]));
    CHECK(least[i] == std::min(a[i], b[i]));
    CHECK(mean[i] == (a[i] + b[i]) / 2);
  }
}

TEST_CASE("timed data stay finite for as many operations as are allowed") {
  constexpr int ranks = 4;
  auto const largest = [](double value, int operations) { return value * std::pow(ranks, operations); };
  CHECK(largest(std::abs(static_cast<double>(timedElement<float>(~0ull, ReduceOp::sum))), 220 / 2) <
        static_cast<double>(std::numeric_limits<float>::max()));
  CHECK(largest(std::abs(static_cast<double>(static_cast<float>(timedElement<Half>(~0ull, ReduceOp::sum)))), 27 / 2) <
        65504.0);
  for (std::uint64_t word : {0ull, 1ull, 12345678901ull, ~0ull}) {
    CHECK(std::abs(timedElement<double>(word, ReduceOp::prod)) == 1.0);
  }
}

TEST_CASE("slack covers another order of the same additions and no more than a few roundings") {
  constexpr int ranks = 8;
  constexpr std::size_t period = 2000;
  auto const expected = expectedWithSlack(DataType::float32, ReduceOp::sum, 21, ranks, period);
  REQUIRE(expected.slack.size() == period);
  std::vector<float> backwards(period);
  for (int rank = ranks - 1; rank >= 0; --rank) {
    auto const input = valuesOf<float>(checkedBlock(DataType::float32, ReduceOp::sum, 21, rank, period));
    for (std::size_t i = 0; i < period; ++i) backwards[i] += input[i];
  }
  auto const results = valuesOf<float>(expected.block);
  for (std::size_t i = 0; i < period; ++i) {
    REQUIRE(std::abs(backwards[i] - results[i]) <= expected.slack[i]);
    REQUIRE(expected.slack[i] < 1e-4f);
  }
  CHECK(expectedWithSlack(DataType::int32, ReduceOp::sum, 21, ranks, period).slack.empty());
  CHECK(expectedWithSlack(DataType::float32, ReduceOp::max, 21, ranks, period).slack.empty());
}

TEST_CASE("data that is only moved has all bits, in every type, and is timed as it is checked") {
  constexpr std::size_t period = 4000;
  for (auto type : dataTypes) {
    CAPTURE(nameOf(type));
    auto const block = checkedBlock(type, ReduceOp::none, 3, 1, period);
    CHECK(timedBlock(type, ReduceOp::none, 3, 1, period) == block);
    std::vector<std::size_t> counts(8 * bytesOf(type));
    for (std::size_t i = 0; i < block.size(); ++i) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((std::to_integer<unsigned>(block[i]) >> bit & 1u) != 0) ++counts[i % bytesOf(type) * 8 + bit];
      }
    }
    for (auto count : counts) CHECK(std::abs(static_cast<double>(count) / period - 0.5) < 0.05);
  }
}

TEST_CASE("answers hold every rank's input, and what they reduce to only where something is reduced") {
  auto const answers = answersFor(DataType::float32, ReduceOp::max, 8, 3, 100);
  REQUIRE(answers.inputs.size() == 3);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(answers.inputs[static_cast<std::size_t>(rank)].block ==
          checkedBlock(DataType::float32, ReduceOp::max, 8, rank, 100));
  }
  CHECK(answers.reduced.block == expectedBlock(DataType::float32, ReduceOp::max, 8, 3, 100).block);
  CHECK(answersFor(DataType::float32, ReduceOp::none, 8, 3, 100).reduced.block.empty());
}

TEST_CASE("the longest period is odd, so that repetitions fall on every alignment") {
  CHECK(longestPeriod % 2 == 1);
  CHECK(periodFor(10) == 10);
  CHECK(periodFor(std::size_t{1} << 30) == longestPeriod);
}
