// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bytes that follow from a number, the same everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>

namespace mscclpp::test {

inline void fillRandom(std::span<std::byte> bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    auto const value = random();
    std::memcpy(bytes.data() + at, &value, 8);
  }
  for (; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(random());
}

}  // namespace mscclpp::test
