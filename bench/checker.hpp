// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares a result with what was expected, element by element. Cost where all is right: that of memcmp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "inputs.hpp"

namespace mscclpp::bench {

// What outputs hold before the operation.
inline constexpr int poisonByte = 0xa5;

// Elements of `actual` that are not as expected; its first is element `first` of the result.
std::uint64_t countWrong(std::span<std::byte const> actual, std::uint64_t first, Expected const& expected);

// Bytes that are no longer poison, in memory that nobody may write.
std::uint64_t countTouched(std::span<std::byte const> guard);

}  // namespace mscclpp::bench
