// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The data of a case: what each rank puts in, and what must come out.
//
// A rank's input is one block of random elements, repeated over its buffer; what comes out repeats in the same way, so
// a gigabyte is checked against one block of each rank, or of what they reduce to. The block's length is odd, so that
// repetitions fall on every alignment and an element that went to the wrong place is not hidden by an equal one there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "mscclpp/device/data_type.hpp"

namespace mscclpp::bench {

// What outputs hold before the operation.
inline constexpr int poisonByte = 0xa5;

inline constexpr std::size_t longestPeriod = 1048573;

// SplitMix64: one well-mixed word per (seed, rank, index), in any order.
constexpr std::uint64_t randomWord(std::uint64_t seed, int rank, std::size_t index) {
  std::uint64_t x =
      seed + 0x9e3779b97f4a7c15u * (index + 1) + 0xd1b54a32d192ed03u * static_cast<std::uint64_t>(rank + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// How far, in powers of two, timed sums may grow before they leave the type; nothing: they wrap or saturate.
template <Number T>
constexpr std::optional<int> timedGrowthBits() {
  if constexpr (std::is_same_v<T, double>) return 1500;
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BFloat16>) return 220;
  if constexpr (std::is_same_v<T, Half>) return 27;
  return std::nullopt;
}

// An element of the data that is checked: all bits of integers, and of everything that is only moved; otherwise from -8
// to 8, for products near 1.
template <Number T>
T checkedElement(std::uint64_t word, ReduceOp operation) {
  if (operation == ReduceOp::none) {
    T value;
    std::memcpy(&value, &word, sizeof(T));
    return value;
  }
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(word);
  } else {
    double const unit = static_cast<double>(word >> 11) * 0x1p-53;  // 0 to 1
    if (operation == ReduceOp::prod) {
      return convertNumber<T>(((word & 1u) != 0 ? -1.0 : 1.0) * (0.5 + 1.5 * unit));
    }
    return convertNumber<T>(16 * unit - 8);
  }
}

// An element of the data that is timed: operations follow each other on their own results, and these must stay finite.
// The same as is checked where data is only moved.
template <Number T>
T timedElement(std::uint64_t word, ReduceOp operation) {
  if constexpr (!std::is_integral_v<T>) {
    if (operation == ReduceOp::none) return checkedElement<T>(word, operation);
    if (operation == ReduceOp::prod) return convertNumber<T>((word & 1u) != 0 ? -1.0 : 1.0);
    if constexpr (timedGrowthBits<T>().has_value()) {
      if (operation == ReduceOp::sum) {
        double const unit = static_cast<double>(word >> 11) * 0x1p-52 - 1;  // -1 to 1
        int const exponent = std::is_same_v<T, double> ? -500 : std::is_same_v<T, Half> ? -12 : -100;
        return convertNumber<T>(std::ldexp(unit, exponent));
      }
    }
  }
  return checkedElement<T>(word, operation);
}

// One block of results. `slack` is empty where every bit must agree; otherwise, by element, the allowed difference.
struct Expected {
  DataType type{};
  std::vector<std::byte> block;
  std::vector<float> slack;

  std::size_t period() const { return block.size() / bytesOf(type); }
};

// Period of the data of a case of `count` elements.
constexpr std::size_t periodFor(std::size_t count) { return std::min(count, longestPeriod); }

std::vector<std::byte> checkedBlock(DataType type, ReduceOp operation, std::uint64_t seed, int rank,
                                    std::size_t period);
std::vector<std::byte> timedBlock(DataType type, ReduceOp operation, std::uint64_t seed, int rank, std::size_t period);

// What all ranks' checked blocks reduce to: in rank order, in the accumulate type, rounded once, as our kernels do.
Expected expectedBlock(DataType type, ReduceOp operation, std::uint64_t seed, int ranks, std::size_t period);
// The same with slack for a library that reduces in another order and rounds in between. Integers, minimum and maximum
// have none.
Expected expectedWithSlack(DataType type, ReduceOp operation, std::uint64_t seed, int ranks, std::size_t period);

// Of a case.
struct Answers {
  std::vector<Expected> inputs;  // what each rank put in
  Expected poison;               // what outputs hold before the operation
  // What the inputs reduce to; empty where nothing is reduced.
  Expected reduced;
  Expected reducedLoosely;  // the same with slack; empty until it is asked for
};

Answers answersFor(DataType type, ReduceOp operation, std::uint64_t seed, int ranks, std::size_t period);

}  // namespace mscclpp::bench
