// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory operations with visible order and scope, on the simulated machine. Twin of arch/cuda/memory.hpp.
//
// Each is a scheduling point and one step of the memory model; see sim/backend/ordered_access.hpp.
// The 16-byte forms are relaxed, system scope, and whole per 8 bytes only: another thread may see one half of them. But
// storeReleaseWords4 shows its second half last.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/arch/sim/thread.hpp"
#include "mscclpp/sim/backend/ordered_access.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

template <class T>
concept Word = (sizeof(T) == 4 || sizeof(T) == 8) && std::is_trivially_copyable_v<T>;

template <Word T>
std::uint64_t toBits(T value) {
  return std::bit_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(value);
}

template <Word T>
T fromBits(std::uint64_t bits) {
  return std::bit_cast<T>(static_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(bits));
}

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE T load(T const* address) {
  static_assert(O == Order::relaxed || O == Order::acquire, "a load is relaxed or acquire");
  static_assert(S != Scope::thread, "a load that only its own thread relies on is a plain read");
  return fromBits<T>(sim::loadWord(address, sizeof(T), O, S));
}

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE void store(T* address, std::type_identity_t<T> value) {
  static_assert(O == Order::relaxed || O == Order::release, "a store is relaxed or release");
  static_assert(S != Scope::thread, "a store that only its own thread relies on is a plain write");
  sim::storeWord(address, sizeof(T), toBits(value), O, S);
}

template <Order O, Scope S, Word T>
requires std::is_integral_v<T> MSCCLPP_DEVICE T fetchAdd(T* address, std::type_identity_t<T> value) {
  return fromBits<T>(sim::addWord(address, sizeof(T), toBits(value), O, S));
}

// Like fetchAdd, without the answer.
template <Order O, Scope S, Word T>
requires std::is_integral_v<T> MSCCLPP_DEVICE void reduceAdd(T* address, std::type_identity_t<T> value) {
  static_assert(O == Order::relaxed || O == Order::release, "a reduction is relaxed or release");
  sim::addWord(address, sizeof(T), toBits(value), O, S);
}

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE T exchange(T* address, std::type_identity_t<T> value) {
  return fromBits<T>(sim::exchangeWord(address, sizeof(T), toBits(value), O, S));
}

// On failure `expected` receives the value found.
template <Order O, Scope S, Word T>
MSCCLPP_DEVICE bool compareExchange(T* address, T& expected, std::type_identity_t<T> desired) {
  auto const before = toBits(expected);
  auto const found = sim::compareExchangeWord(address, sizeof(T), before, toBits(desired), O, S);
  if (found == before) return true;
  expected = fromBits<T>(found);
  return false;
}

template <Order O, Scope S>
MSCCLPP_DEVICE void fence() {
  static_assert(O == Order::acquireRelease || O == Order::sequential, "a fence is acquireRelease or sequential");
  sim::fenceStep(O, S);
}

MSCCLPP_DEVICE Words2 loadWords2(Words2 const* address) {
  return fromBits<Words2>(sim::loadWord(address, sizeof(Words2), Order::relaxed, Scope::system));
}

MSCCLPP_DEVICE void storeWords2(Words2* address, Words2 const& v) {
  sim::storeWord(address, sizeof(Words2), toBits(v), Order::relaxed, Scope::system);
}

MSCCLPP_DEVICE Words4 loadWords4(Words4 const* address) { return sim::loadWords4(address); }
MSCCLPP_DEVICE void storeWords4(Words4* address, Words4 const& v) { sim::storeWords4(address, v); }

// Release, system scope: whoever acquires the second half sees the first.
MSCCLPP_DEVICE void storeReleaseWords4(Words4* address, Words4 const& v) {
  auto const halves = bitCast<std::array<std::uint64_t, 2>>(v);
  auto* const words = reinterpret_cast<std::uint64_t*>(address);
  sim::storeWord(words, 8, halves[0], Order::relaxed, Scope::system);
  sim::storeWord(words + 1, 8, halves[1], Order::release, Scope::system);
}

// Called by all 32 lanes of a warp, eight lanes to a 128-byte line, `active` the same for the lanes of a line.
MSCCLPP_DEVICE void storeLines(Words4* address, Words4 const& v, bool active) { sim::storeLines(address, v, active); }
MSCCLPP_DEVICE Words4 loadLines(Words4 const* address, bool active) { return sim::loadLines(address, active); }

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
