// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Inputs that change with the seed, and what an all-reduce must make of them: the same steps in the same types, on the
// host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "mscclpp/device/number.hpp"

namespace mscclpp_test {

template <mscclpp::Number T>
std::vector<T> randomInput(std::uint64_t seed, int rank, std::size_t count) {
  std::mt19937_64 engine(seed * 1000003 + static_cast<std::uint64_t>(rank));
  std::vector<T> values(count);
  for (auto& value : values) {
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(engine());
    } else {
      value = mscclpp::convertNumber<T>(std::uniform_real_distribution<float>(-2.0f, 2.0f)(engine));
    }
  }
  return values;
}

// Inputs of all ranks reduced in rank order; the accumulators, before they are rounded to T.
template <class A, class Op, class T>
std::vector<A> reduceInRankOrder(std::vector<std::vector<T>> const& inputs) {
  std::vector<A> totals(inputs[0].size());
  for (std::size_t i = 0; i < totals.size(); ++i) {
    auto total = mscclpp::convertNumber<A>(inputs[0][i]);
    for (std::size_t r = 1; r < inputs.size(); ++r) total = Op{}(total, mscclpp::convertNumber<A>(inputs[r][i]));
    totals[i] = Op{}.finish(total, static_cast<int>(inputs.size()));
  }
  return totals;
}

// Elements whose bits differ.
template <class T>
std::size_t countDifferent(std::vector<T> const& a, std::vector<T> const& b) {
  std::size_t different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) ++different;
  }
  return different;
}

}  // namespace mscclpp_test
