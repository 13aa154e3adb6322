// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "inputs.hpp"

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
    return checkedBlock(ElementType::float32, Operation::sum, seed, rank, 500);
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
    inputs.push_back(valuesOf<BFloat16>(checkedBlock(ElementType::bfloat16, Operation::sum, 9, rank, period)));
  }
  auto const expected = expectedBlock(ElementType::bfloat16, Operation::sum, 9, ranks, period);
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
  auto const a = valuesOf<std::uint8_t>(checkedBlock(ElementType::uint8, Operation::sum, 4, 0, period));
  auto const b = valuesOf<std::uint8_t>(checkedBlock(ElementType::uint8, Operation::sum, 4, 1, period));
  auto const sum = valuesOf<std::uint8_t>(expectedBlock(ElementType::uint8, Operation::sum, 4, 2, period).block);
  auto const least = valuesOf<std::uint8_t>(expectedBlock(ElementType::uint8, Operation::min, 4, 2, period).block);
  auto const mean = valuesOf<std::uint8_t>(expectedBlock(ElementType::uint8, Operation::avg, 4, 2, period).block);
  for (std::size_t i = 0; i < period; ++i) {
    CHECK(sum[i] == static_cast<std::uint8_t>(a[i] + b[i]));
    CHECK(least[i] == std::min(a[i], b[i]));
    CHECK(mean[i] == (a[i] + b[i]) / 2);
  }
}

TEST_CASE("timed data stay finite for as many operations as are allowed") {
  constexpr int ranks = 4;
  auto const largest = [](double value, int operations) { return value * std::pow(ranks, operations); };
  CHECK(largest(std::abs(static_cast<double>(timedElement<float>(~0ull, Operation::sum))), 220 / 2) <
        static_cast<double>(std::numeric_limits<float>::max()));
  CHECK(largest(std::abs(static_cast<double>(static_cast<float>(timedElement<Half>(~0ull, Operation::sum)))), 27 / 2) <
        65504.0);
  for (std::uint64_t word : {0ull, 1ull, 12345678901ull, ~0ull}) {
    CHECK(std::abs(timedElement<double>(word, Operation::prod)) == 1.0);
  }
}

TEST_CASE("slack covers another order of the same additions and no more than a few roundings") {
  constexpr int ranks = 8;
  constexpr std::size_t period = 2000;
  auto const expected = expectedWithSlack(ElementType::float32, Operation::sum, 21, ranks, period);
  REQUIRE(expected.slack.size() == period);
  std::vector<float> backwards(period);
  for (int rank = ranks - 1; rank >= 0; --rank) {
    auto const input = valuesOf<float>(checkedBlock(ElementType::float32, Operation::sum, 21, rank, period));
    for (std::size_t i = 0; i < period; ++i) backwards[i] += input[i];
  }
  auto const results = valuesOf<float>(expected.block);
  for (std::size_t i = 0; i < period; ++i) {
    REQUIRE(std::abs(backwards[i] - results[i]) <= expected.slack[i]);
    REQUIRE(expected.slack[i] < 1e-4f);
  }
  CHECK(expectedWithSlack(ElementType::int32, Operation::sum, 21, ranks, period).slack.empty());
  CHECK(expectedWithSlack(ElementType::float32, Operation::max, 21, ranks, period).slack.empty());
}

TEST_CASE("the longest period is odd, so that repetitions fall on every alignment") {
  CHECK(longestPeriod % 2 == 1);
  CHECK(periodFor(10) == 10);
  CHECK(periodFor(std::size_t{1} << 30) == longestPeriod);
}
