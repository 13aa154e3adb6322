// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// This file is compiled with -fsanitize=thread, so every atomic here is a call of the hooks, which must do the work.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "sim/hooks/tsan_hooks.hpp"

namespace {

// `Wide` values whose halves differ, so that a hook which loses one is seen.
template <class T>
constexpr T value(unsigned seed) {
  T result = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    result = static_cast<T>(result << 8 | static_cast<T>(seed + 37 * i) % 251);
  return result;
}

template <class T>
void checkAtomics() {
  alignas(16) T word = value<T>(1);
  T const a = value<T>(1);
  T const b = value<T>(90);
  auto const is = [&](T expected) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE) == expected; };

  CHECK(is(a));
  __atomic_store_n(&word, b, __ATOMIC_RELEASE);
  CHECK(is(b));
  CHECK(__atomic_exchange_n(&word, a, __ATOMIC_ACQ_REL) == b);
  CHECK(is(a));

  CHECK(__atomic_fetch_add(&word, b, __ATOMIC_SEQ_CST) == a);
  CHECK(is(static_cast<T>(a + b)));
  CHECK(__atomic_fetch_sub(&word, b, __ATOMIC_RELAXED) == static_cast<T>(a + b));
  CHECK(is(a));
  CHECK(__atomic_fetch_and(&word, b, __ATOMIC_RELAXED) == a);
  CHECK(is(a & b));
  CHECK(__atomic_fetch_or(&word, a, __ATOMIC_RELAXED) == (a & b));
  CHECK(is(a));
  CHECK(__atomic_fetch_xor(&word, b, __ATOMIC_RELAXED) == a);
  CHECK(is(a ^ b));
  CHECK(__atomic_fetch_nand(&word, b, __ATOMIC_RELAXED) == (a ^ b));
  CHECK(is(static_cast<T>(~((a ^ b) & b))));

  __atomic_store_n(&word, a, __ATOMIC_RELAXED);
  T expected = b;
  CHECK(!__atomic_compare_exchange_n(&word, &expected, b, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  CHECK(expected == a);
  CHECK(is(a));
  CHECK(__atomic_compare_exchange_n(&word, &expected, b, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  CHECK(expected == a);
  CHECK(is(b));
  expected = b;
  while (!__atomic_compare_exchange_n(&word, &expected, a, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  CHECK(is(a));
}

}  // namespace

TEST_CASE("atomics of every width do what they say") {
  checkAtomics<std::uint8_t>();
  checkAtomics<std::uint16_t>();
  checkAtomics<std::uint32_t>();
  checkAtomics<std::uint64_t>();
}

#if defined(__GNUC__) && !defined(__clang__)
// clang calls libatomic for them unless told -mcx16.
TEST_CASE("and so do those of 16 bytes") {
  __extension__ using Wide = unsigned __int128;
  checkAtomics<Wide>();
}
#endif

TEST_CASE("fences are there") {
  std::atomic<int> a{1};
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  CHECK(a.load() == 1);
}

TEST_CASE("block copies work, of a length that only the run knows") {
  std::vector<unsigned char> from(1000), to(1000);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(3));
  volatile std::size_t const bytes = 777;
  CHECK(std::memcpy(to.data(), from.data(), bytes) == to.data());
  CHECK(std::equal(to.begin(), to.begin() + 777, from.begin()));
  CHECK(to[777] == 0);
  CHECK(std::memmove(to.data() + 5, to.data(), bytes) == to.data() + 5);
  CHECK(std::equal(from.begin(), from.begin() + 777, to.begin() + 5));
  CHECK(std::memset(to.data(), 9, bytes) == to.data());
  CHECK(to[776] == 9);
  CHECK(to[777] == from[772]);
}

TEST_CASE("instrumented files are counted") { CHECK(mscclpp::sim::instrumentedUnits() >= 1); }
