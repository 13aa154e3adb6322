// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// SipHash-2-4 (Aumasson and Bernstein, 2012): a 64-bit hash that only those who hold the 128-bit key can compute. Used
// to prove knowledge of a secret without sending it. The standard library has none, and a crypto library would be a
// heavy dependency for forty lines with published test values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/random.hpp"

namespace mscclpp {

inline std::uint64_t keyedHash(Key128 const& key, std::span<std::byte const> data) {
  auto const word = [](auto const* bytes, std::size_t count) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    return value;
  };
  std::uint64_t const k0 = word(key.data(), 8);
  std::uint64_t const k1 = word(key.data() + 8, 8);
  std::uint64_t v0 = k0 ^ 0x736f6d6570736575ull;
  std::uint64_t v1 = k1 ^ 0x646f72616e646f6dull;
  std::uint64_t v2 = k0 ^ 0x6c7967656e657261ull;
  std::uint64_t v3 = k1 ^ 0x7465646279746573ull;
  auto const rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  };
  auto const absorb = [&](std::uint64_t m) {
    v3 ^= m;
    rounds(2);
    v0 ^= m;
  };
  auto const* bytes = reinterpret_cast<std::uint8_t const*>(data.data());
  std::size_t at = 0;
  for (; at + 8 <= data.size(); at += 8) absorb(word(bytes + at, 8));
  absorb(word(bytes + at, data.size() - at) | (static_cast<std::uint64_t>(data.size()) << 56));
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace mscclpp
