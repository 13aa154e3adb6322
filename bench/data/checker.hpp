// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares a result with what was expected, element by element. Cost where all is right: that of memcmp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/inputs.hpp"
#include "plan/exchange.hpp"

namespace mscclpp::bench {

// Elements of `actual` that are not as expected; its first is element `first` of the result.
std::uint64_t countWrong(std::span<std::byte const> actual, std::uint64_t first, Expected const& expected);

// The same for part of a buffer of slots of `slotCount` elements each, whose contents are given by slot. `loosely`:
// what was reduced may differ by the slack.
std::uint64_t countWrong(std::span<std::byte const> actual, std::uint64_t first, std::vector<Content> const& contents,
                         std::uint64_t slotCount, Answers const& answers, bool loosely);

// Bytes that are no longer poison, in memory that nobody may write.
std::uint64_t countTouched(std::span<std::byte const> guard);

}  // namespace mscclpp::bench
