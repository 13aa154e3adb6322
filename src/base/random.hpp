// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Randomness for secrets, from the operating system.
#pragma once

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "mscclpp/host/error.hpp"

namespace mscclpp {

using Key128 = std::array<std::uint8_t, 16>;

inline Key128 randomKey() {
  Key128 key{};
  std::size_t filled = 0;
  while (filled < key.size()) {
    auto const got = ::getrandom(key.data() + filled, key.size() - filled, 0);
    if (got < 0 && errno != EINTR) throwSystemError("getrandom for a 128-bit key", errno);
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return key;
}

// Takes the same time wherever the two differ.
template <std::size_t N>
bool equalConstantTime(std::array<std::uint8_t, N> const& a, std::array<std::uint8_t, N> const& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < N; ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace mscclpp
