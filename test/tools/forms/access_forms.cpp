// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The forms in which code touches memory, each a function of its own, for access_forms.py. A form reads all of the
// first `read` bytes of `from` and writes all of the first `written` bytes of `to`, and nothing else of the two.
#include "access_forms.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <complex>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <strings.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Watomic-alignment"
#pragma GCC diagnostic ignored "-Wpsabi"

namespace {

__extension__ using Wide = __int128;

template <std::size_t n>
struct Bytes {
  char bytes[n];
};
template <std::size_t n>
struct Words {
  int words[n];
};
struct alignas(8) Pair {
  int first, second;
};
struct alignas(16) WidePair {
  long first, second;
};
struct Row {
  double first;
  int second;
  float third[9];
};
struct [[gnu::packed]] Packed {
  char byte;
  short two;
  int four;
  long eight;
  double real;
};
struct Bits {
  unsigned low : 3;
  unsigned middle : 26;
  unsigned high : 3;
};
union Either {
  long whole;
  float half;
};
template <class T, int bytes>
using Vector [[gnu::vector_size(bytes)]] = T;
using Unaligned16 = Vector<float, 16> __attribute__((aligned(4), may_alias));

template <class T>
T* as(char* p) {
  return reinterpret_cast<T*>(p);
}
template <class T>
T const* as(char const* p) {
  return reinterpret_cast<T const*>(p);
}

template <class T>
long bitsOf(T const& value) {
  long bits = 0;
  __builtin_memcpy(&bits, &value, std::min(sizeof value, sizeof bits));
  return bits;
}

[[gnu::noinline]] Row changedRow(Row const& row) {
  auto changed = row;
  changed.second += 3;
  return changed;
}
[[gnu::noinline]] float sumOf(Bytes<48> const& row) { return row.bytes[0] + row.bytes[47]; }

}  // namespace

#define FORM(name, read, written, ...)                                           \
  {                                                                              \
    name, read, written, [](char* to, char const* from, std::size_t n) -> long { \
      static_cast<void>(to), static_cast<void>(from), static_cast<void>(n);      \
      __VA_ARGS__;                                                               \
      return 0;                                                                  \
    }                                                                            \
  }

// `n` is 64, which the compiler does not know; strings end after 40 characters.
AccessForm const accessForms[] = {
    // ---- block copies
    FORM("memcpy 1", 1, 1, std::memcpy(to, from, 1)),
    FORM("memcpy 2", 2, 2, std::memcpy(to, from, 2)),
    FORM("memcpy 3", 3, 3, std::memcpy(to, from, 3)),
    FORM("memcpy 4", 4, 4, std::memcpy(to, from, 4)),
    FORM("memcpy 7", 7, 7, std::memcpy(to, from, 7)),
    FORM("memcpy 8", 8, 8, std::memcpy(to, from, 8)),
    FORM("memcpy 12", 12, 12, std::memcpy(to, from, 12)),
    FORM("memcpy 16", 16, 16, std::memcpy(to, from, 16)),
    FORM("memcpy 32", 32, 32, std::memcpy(to, from, 32)),
    FORM("memcpy 48", 48, 48, std::memcpy(to, from, 48)),
    FORM("memcpy 64", 64, 64, std::memcpy(to, from, 64)),
    FORM("memcpy 200", 200, 200, std::memcpy(to, from, 200)),
    FORM("memcpy n", 64, 64, std::memcpy(to, from, n)),
    FORM("memcpy, unqualified", 48, 48, using namespace std; memcpy(to, from, 48)),
    FORM("memcpy through a pointer", 48, 48, auto* volatile copy = &std::memcpy; copy(to, from, 48)),
    FORM("memcpy, aligned", 64, 64,
         std::memcpy(__builtin_assume_aligned(to, 64), __builtin_assume_aligned(from, 64), 64)),
    FORM("memcpy of a literal", 0, 16, std::memcpy(to, "a literal of 16", 16)),
    FORM("memcpy of a local struct", 0, 48, Bytes<48> row = {{1, 2, 3}}; std::memcpy(to, &row, 48)),
    FORM("memcpy into a local struct", 48, 0, Bytes<48> row; std::memcpy(&row, from, 48);
         return static_cast<long>(sumOf(row))),
    FORM("memcpy of a struct", 48, 48, std::memcpy(as<Row>(to), as<Row>(from), 48)),
    FORM("memmove 12", 12, 12, std::memmove(to, from, 12)),
    FORM("memmove 64", 64, 64, std::memmove(to, from, 64)),
    FORM("memmove n", 64, 64, std::memmove(to, from, n)),
    FORM("memset 1", 0, 1, std::memset(to, 0, 1)),
    FORM("memset 12", 0, 12, std::memset(to, 0, 12)),
    FORM("memset 64", 0, 64, std::memset(to, 0, 64)),
    FORM("memset 64 of 7", 0, 64, std::memset(to, 7, 64)),
    FORM("memset n", 0, 64, std::memset(to, 0, n)),
    FORM("mempcpy 48", 48, 48, return static_cast<char*>(mempcpy(to, from, 48)) - to),
    FORM("bcopy 48", 48, 48, bcopy(from, to, 48)),
    FORM("bzero 48", 0, 48, bzero(to, 48)),
    FORM("memcmp 4", 4, 0, return std::memcmp(from, to, 4)),
    FORM("memcmp 16 == 0", 16, 0, return std::memcmp(from, to, 16) == 0),
    FORM("memcmp 48", 48, 0, return std::memcmp(from, to, 48)),
    FORM("memcmp n", 64, 0, return std::memcmp(from, to, n)),
    FORM("bcmp 48", 48, 0, return bcmp(from, to, 48)),
    FORM("memchr 48", 48, 0, return std::memchr(from, 0x7f, 48) != nullptr),

    // ---- the same as builtins
    FORM("__builtin_memcpy 8", 8, 8, __builtin_memcpy(to, from, 8)),
    FORM("__builtin_memcpy 12", 12, 12, __builtin_memcpy(to, from, 12)),
    FORM("__builtin_memcpy 48", 48, 48, __builtin_memcpy(to, from, 48)),
    FORM("__builtin_memcpy 64", 64, 64, __builtin_memcpy(to, from, 64)),
    FORM("__builtin_memcpy n", 64, 64, __builtin_memcpy(to, from, n)),
    FORM("__builtin_memmove 64", 64, 64, __builtin_memmove(to, from, 64)),
    FORM("__builtin_memset 64", 0, 64, __builtin_memset(to, 0, 64)),
    FORM("__builtin_mempcpy 48", 48, 48, return static_cast<char*>(__builtin_mempcpy(to, from, 48)) - to),
    FORM("__builtin_bzero 48", 0, 48, __builtin_bzero(to, 48)),
    FORM("__builtin_memcmp 48", 48, 0, return __builtin_memcmp(from, to, 48)),
    FORM("__builtin_memchr 48", 48, 0, return __builtin_memchr(from, 0x7f, 48) != nullptr),
    FORM("__builtin_strlen", 41, 0, return static_cast<long>(__builtin_strlen(from))),
    FORM("__builtin_strcpy", 41, 41, __builtin_strcpy(to, from)),
    FORM("__builtin_strcmp", 41, 0, return __builtin_strcmp(from, to)),

    // ---- strings
    FORM("strlen", 41, 0, return static_cast<long>(std::strlen(from))),
    FORM("strlen, aligned", 41, 0,
         return static_cast<long>(std::strlen(static_cast<char const*>(__builtin_assume_aligned(from, 8))))),
    FORM("strcpy", 41, 41, std::strcpy(to, from)),
    FORM("strcpy of a literal", 0, 10, std::strcpy(to, "a literal")),
    FORM("strncpy", 41, 48, std::strncpy(to, from, 48)),
    FORM("stpcpy", 41, 41, return stpcpy(to, from) - to),
    FORM("strcmp", 41, 0, return std::strcmp(from, to)),
    FORM("strncmp", 12, 0, return std::strncmp(from, to, 12)),
    FORM("strcmp with a literal", 2, 0, return std::strcmp(from, "ax")),

    // ---- scalars
    FORM("char", 1, 1, *to = *from),
    FORM("short", 2, 2, *as<short>(to) = *as<short>(from)),
    FORM("int", 4, 4, *as<int>(to) = *as<int>(from)),
    FORM("long", 8, 8, *as<long>(to) = *as<long>(from)),
    FORM("float", 4, 4, *as<float>(to) = *as<float>(from) + 1),
    FORM("double", 8, 8, *as<double>(to) = *as<double>(from) + 1),
    FORM("128-bit integer", 16, 16, *as<Wide>(to) = *as<Wide>(from) + 1),
    FORM("bool", 0, 1, *as<bool>(to) = true),
    FORM("pointer", 8, 8, *as<void*>(to) = *as<void*>(from)),
    FORM("complex", 8, 8, *as<std::complex<float>>(to) = *as<std::complex<float>>(from)),
    FORM("complex double", 16, 16, *as<std::complex<double>>(to) = *as<std::complex<double>>(from)),
    FORM("increment", 0, 4, ++*as<int>(to)),
    FORM("volatile", 8, 8, *as<long volatile>(to) = *as<long const volatile>(from)),
    FORM("packed members", 23, 23, auto* t = as<Packed>(to); auto* f = as<Packed>(from); t->byte = f->byte;
         t->two = f->two; t->four = f->four; t->eight = f->eight; t->real = f->real),
    FORM("bit-field", 4, 0, return as<Bits>(from)->middle),
    FORM("bit-field written", 0, 4, as<Bits>(to)->low = 5; as<Bits>(to)->middle = static_cast<unsigned>(n);
         as<Bits>(to)->high = static_cast<unsigned>(n)),
    FORM("union", 8, 4, as<Either>(to)->half = static_cast<float>(as<Either>(from)->whole)),

    // ---- aggregates
    FORM("struct of 3 bytes", 3, 3, *as<Bytes<3>>(to) = *as<Bytes<3>>(from)),
    FORM("struct of 12 bytes", 12, 12, *as<Words<3>>(to) = *as<Words<3>>(from)),
    FORM("struct of 16 bytes", 16, 16, *as<Words<4>>(to) = *as<Words<4>>(from)),
    FORM("struct of 48 bytes", 48, 48, *as<Row>(to) = *as<Row>(from)),
    FORM("struct of 64 bytes", 64, 64, *as<Words<16>>(to) = *as<Words<16>>(from)),
    FORM("struct of 200 bytes", 200, 200, *as<Bytes<200>>(to) = *as<Bytes<200>>(from)),
    FORM("struct of zeros", 0, 48, *as<Row>(to) = {}),
    FORM("struct of values", 0, 12, *as<Words<3>>(to) = {{static_cast<int>(n), 2, 3}}),
    FORM("struct by placement new", 0, 48, new (to) Row{}),
    FORM("struct through a local", 48, 48, auto row = *as<Row>(from); row.second += 2; *as<Row>(to) = row),
    FORM(
        "struct thrown", 48, 0, try { throw *as<Row>(from); } catch (Row const& row) { return row.second; }),
    FORM(
        "struct returned", 48, 48, auto const f = [&] { return *as<Row>(from); }; *as<Row>(to) = f()),
    FORM("struct chosen", 48, 48, *as<Row>(to) = n == 64 ? *as<Row>(from) : Row{}),
    FORM("array in a range", 48, 0, int sum = 0; for (int const v
                                                      : as<Words<12>>(from)->words) sum += v;
         return sum),
#if defined(__SSE__)
    FORM("_mm_storeu_ps", 16, 16, _mm_storeu_ps(as<float>(to), _mm_loadu_ps(as<float>(from)))),
#endif
    FORM("struct passed by reference", 48, 48, *as<Row>(to) = changedRow(*as<Row>(from))),
    FORM(
        "struct captured by value", 48, 48, auto const f = [row = *as<Row>(from)] { return row; }; *as<Row>(to) = f()),
    FORM("std::array", 48, 48, (*as<std::array<float, 12>>(to) = *as<std::array<float, 12>>(from))),
    FORM("std::tuple", 12, 12, (*as<std::tuple<int, int, int>>(to) = *as<std::tuple<int, int, int>>(from))),
    FORM("std::swap of structs", 0, 48, Row row{}; std::swap(*as<Row>(to), row)),
    FORM("std::exchange", 0, 8, return std::exchange(*as<long>(to), 3)),
    FORM("bit_cast", 12, 12, (*as<Words<3>>(to) = std::bit_cast<Words<3>>(*as<Bytes<12>>(from)))),

    // ---- vectors
    FORM("vector of 8 bytes", 8, 8, (*as<Vector<float, 8>>(to) = *as<Vector<float, 8>>(from))),
    FORM("vector of 16 bytes", 16, 16, (*as<Vector<float, 16>>(to) = *as<Vector<float, 16>>(from))),
    FORM("vector of 16 bytes, unaligned", 16, 16, *as<Unaligned16>(to) = *as<Unaligned16>(from)),

    // ---- atomics
    FORM("atomic_ref, 1 byte", 1, 1, std::atomic_ref(*to).store(std::atomic_ref(const_cast<char&>(*from)).load())),
    FORM("atomic_ref, 4 bytes", 4, 4,
         std::atomic_ref(*as<int>(to))
             .store(std::atomic_ref(const_cast<int&>(*as<int>(from))).load(std::memory_order_relaxed),
                    std::memory_order_relaxed)),
    FORM("atomic_ref, 8 bytes", 8, 8,
         std::atomic_ref(*as<long>(to))
             .store(std::atomic_ref(const_cast<long&>(*as<long>(from))).load(std::memory_order_acquire),
                    std::memory_order_release)),
    FORM("atomic_ref of float", 0, 4, return static_cast<long>(std::atomic_ref(*as<float>(to)).fetch_add(1.0f))),
    FORM("atomic_ref of a struct", 0, 8, std::atomic_ref(*as<Pair>(to)).store({})),
    FORM("atomic_ref, exchange", 0, 8, return std::atomic_ref(*as<long>(to)).exchange(3)),
    FORM("std::atomic", 0, 4, ++*as<std::atomic<int>>(to)),
    FORM("std::atomic, compare", 0, 8, long seen = 0; as<std::atomic<long>>(to)->compare_exchange_strong(seen, 2)),
    FORM("__atomic_store_n", 0, 4, __atomic_store_n(as<int>(to), 3, __ATOMIC_RELAXED)),
    FORM("__sync_fetch_and_add", 0, 4, return __sync_fetch_and_add(as<int>(to), 3)),

    FORM("atomic of 16 bytes, refused", 0, 16, __atomic_store_n(as<Wide>(to), 3, __ATOMIC_RELAXED)),
    FORM("atomic_ref of 16 bytes, refused", 0, 16, std::atomic_ref(*as<WidePair>(to)).store({})),
    FORM("atomic of 12 bytes, refused", 0, 12, Words<3> row{};
         __atomic_store(as<Words<3>>(to), &row, __ATOMIC_RELAXED)),
    FORM("exchange of 12 bytes, refused", 0, 12, Words<3> row{}; Words<3> found;
         __atomic_exchange(as<Words<3>>(to), &row, &found, __ATOMIC_RELAXED); return found.words[0]),
    FORM("compare of 12 bytes, refused", 0, 12, Words<3> row{}; Words<3> found;
         return __atomic_compare_exchange(as<Words<3>>(to), &found, &row, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)),
    FORM("load of 12 bytes, refused", 0, 12, Words<3> row; __atomic_load(as<Words<3>>(to), &row, __ATOMIC_RELAXED);
         return row.words[0]),

    // ---- algorithms
    FORM("std::copy of 48 bytes", 48, 48, std::copy(from, from + 48, to)),
    FORM("std::copy of n bytes", 64, 64, std::copy(from, from + n, to)),
    FORM("std::copy of structs", 48, 48, std::copy(as<Words<3>>(from), as<Words<3>>(from) + 4, as<Words<3>>(to))),
    FORM("std::copy_n", 48, 48, std::copy_n(as<float>(from), 12, as<float>(to))),
    FORM("std::copy_backward", 48, 48, std::copy_backward(from, from + 48, to + 48)),
    FORM("std::ranges::copy", 48, 48, std::ranges::copy(from, from + 48, to)),
    FORM("std::fill of 64 bytes", 0, 64, std::fill(to, to + 64, '\0')),
    FORM("std::fill of ints", 0, 64, std::fill(as<int>(to), as<int>(to) + 16, 0)),
    FORM("std::fill_n", 0, 64, std::fill_n(to, n, 'x')),
    FORM("std::uninitialized_copy", 48, 48, std::uninitialized_copy(as<int>(from), as<int>(from) + 12, as<int>(to))),
    FORM("std::uninitialized_fill_n", 0, 48, std::uninitialized_fill_n(as<int>(to), 12, 3)),
    FORM("std::construct_at", 0, 12, std::construct_at(as<Words<3>>(to))),
    FORM("std::transform", 64, 64,
         std::transform(as<int>(from), as<int>(from) + 16, as<int>(to), [](int v) { return v + 1; })),
    FORM("std::reverse_copy", 64, 64, std::reverse_copy(as<int>(from), as<int>(from) + 16, as<int>(to))),
    FORM("std::iota", 0, 64, std::iota(as<int>(to), as<int>(to) + 16, 5)),
    FORM("std::accumulate", 64, 0, return std::accumulate(as<int>(from), as<int>(from) + 16, 0)),
    FORM("std::equal of bytes", 48, 0, return std::equal(from, from + 48, to)),
    FORM("std::lexicographical_compare", 48, 0,
         return std::lexicographical_compare(as<unsigned char>(from), as<unsigned char>(from) + 48,
                                             as<unsigned char>(to), as<unsigned char>(to) + 48)),
    FORM("std::find", 64, 0, return std::find(from, from + 64, '\x7f') - from),
    FORM("std::count", 64, 0, return std::count(from, from + n, 'x')),
    FORM("std::reverse", 0, 64, std::reverse(as<int>(to), as<int>(to) + 16)),
    FORM("std::swap_ranges", 0, 48, int row[12] = {1}; std::swap_ranges(row, row + 12, as<int>(to))),
    FORM("std::string_view", 48, 0, return std::string_view(from, 48) == std::string_view(to, 48)),
    FORM("std::string_view, find", 48, 0, return static_cast<long>(std::string_view(from, 48).find('\x7f'))),
    FORM("std::char_traits", 48, 48, std::char_traits<char>::copy(to, from, 48)),
    FORM("std::string", 41, 0, return static_cast<long>(std::string(from).size())),
    FORM("std::string of 12", 12, 0, return static_cast<long>(std::string(from, 12)[5])),

    // ---- loops that are vectorised or become block copies
    FORM("loop of bytes", 64, 64, for (int i = 0; i < 64; ++i) to[i] = from[i]),
    FORM("loop of n bytes", 64, 64, for (std::size_t i = 0; i < n; ++i) to[i] = from[i]),
    FORM("loop of zeros", 0, 64, for (std::size_t i = 0; i < n; ++i) to[i] = 0),
    FORM("loop without overlap", 64, 64, auto* __restrict t = as<float>(to); auto const* __restrict f = as<float>(from);
         for (std::size_t i = 0; i < n / 4; ++i) t[i] = 2 * f[i]),
    FORM("unrolled loop", 64, 64, auto* t = as<double>(to); auto const* f = as<double>(from);
         for (int i = 0; i < 8; ++i) t[i] = f[i] * 3),
    FORM("sum", 64, 0, int sum = 0; for (std::size_t i = 0; i < n / 4; ++i) sum += as<int>(from)[i]; return sum),
    FORM("neighbouring stores", 0, 8, auto* t = as<short>(to); t[0] = 1; t[1] = 2; t[2] = 3; t[3] = 4),
    FORM("neighbouring copies", 8, 8, to[0] = from[0]; to[1] = from[1]; to[2] = from[2]; to[3] = from[3];
         to[4] = from[4]; to[5] = from[5]; to[6] = from[6]; to[7] = from[7]),
    {nullptr, 0, 0, nullptr},
};
