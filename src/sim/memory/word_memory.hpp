// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Words of 1, 2, 4 or 8 bytes in memory, as the low bits of a 64-bit value. Atomic towards other host threads and
// processes, at least as ordered as acquire and release.
#pragma once

#include <atomic>
#include <cstdint>

#include "sim/memory/access.hpp"

namespace mscclpp::sim {

// Calls `act` with a std::atomic_ref to the word.
template <class Act>
auto atWord(void const* address, unsigned bytes, Act&& act) {
  auto* const p = const_cast<void*>(address);
  switch (bytes) {
    case 1:
      return act(std::atomic_ref<std::uint8_t>(*static_cast<std::uint8_t*>(p)));
    case 2:
      return act(std::atomic_ref<std::uint16_t>(*static_cast<std::uint16_t*>(p)));
    case 4:
      return act(std::atomic_ref<std::uint32_t>(*static_cast<std::uint32_t*>(p)));
    default:
      return act(std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(p)));
  }
}

inline std::uint64_t readWord(void const* address, unsigned bytes) {
  return atWord(address, bytes, [](auto word) -> std::uint64_t { return word.load(std::memory_order_acquire); });
}

inline void writeWord(void* address, unsigned bytes, std::uint64_t value) {
  atWord(address, bytes, [value](auto word) {
    word.store(static_cast<typename decltype(word)::value_type>(value), std::memory_order_release);
  });
}

// Returns what was found.
inline std::uint64_t updateWord(void* address, unsigned bytes, WordUpdate const& update) {
  return atWord(address, bytes, [&](auto word) -> std::uint64_t {
    auto found = word.load();
    for (;;) {
      std::uint64_t value = 0;
      if (!update.apply(found, bytes, value)) return found;
      if (word.compare_exchange_weak(found, static_cast<typename decltype(word)::value_type>(value))) return found;
    }
  });
}

}  // namespace mscclpp::sim
