// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions that code compiled with -fsanitize=thread calls around its memory accesses, here as the ears of the
// simulated machine's checker. Their names and signatures are those of GCC and Clang; no code of their run-time library
// is used. Never link a program that holds this file with -fsanitize=thread.
//
// The two of __ubsan_ are those of -fsanitize=alignment, likewise without its library.
//
// Calls of memcpy, strlen and their kin are not marked by the compiler; the linker leads them here (--wrap).
#include "sim/hooks/tsan_hooks.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "mscclpp/sim/backend/misaligned.hpp"
#include "sim/checker/hook_calls.hpp"

namespace {

using mscclpp::Order;
using mscclpp::sim::UpdateKind;
__extension__ using Wide = unsigned __int128;

std::uint64_t units = 0;

// The compilers' numbers for memory orders: relaxed, consume, acquire, release, acq_rel, seq_cst.
Order orderOf(int number) {
  switch (number & 0x7fff) {
    case 0:
      return Order::relaxed;
    case 1:
    case 2:
      return Order::acquire;
    case 3:
      return Order::release;
    case 4:
      return Order::acquireRelease;
    default:
      return Order::sequential;
  }
}

// Atomics of 16 bytes, of host code: no memory operation of a kernel is one. By compare and swap, which a compiler does
// without a library (x86: -mcx16).
template <class Next>
Wide updateWide(void volatile* address, Next next) {
  mscclpp::sim::hookOddAtomic(const_cast<void*>(address), sizeof(Wide));
  auto* const word = static_cast<Wide volatile*>(address);
  Wide seen = *word;
  while (true) {
    Wide const found = __sync_val_compare_and_swap(word, seen, next(seen));
    if (found == seen) return found;
    seen = found;
  }
}

Wide replaceWide(void volatile* address, Wide expected, Wide desired) {
  return updateWide(address, [&](Wide seen) { return seen == expected ? desired : seen; });
}

void noteCopy(void* to, void const* from, std::size_t bytes, void const* code) {
  mscclpp::sim::hookAccess(from, bytes, false, code);
  mscclpp::sim::hookAccess(to, bytes, true, code);
}

void noteReads(void const* a, void const* b, std::size_t bytes, void const* code) {
  mscclpp::sim::hookAccess(a, bytes, false, code);
  mscclpp::sim::hookAccess(b, bytes, false, code);
}

// Atomics of other sizes, of host code likewise, which compilers leave to libatomic.
template <class Act>
auto withOddAtomic(std::size_t bytes, void volatile* address, Act act) {
  static std::mutex mutex;
  mscclpp::sim::hookOddAtomic(const_cast<void*>(address), bytes);
  std::lock_guard const lock(mutex);
  return act(const_cast<void*>(address));
}

// Characters of two strings that are looked at to compare them.
std::size_t lengthCompared(char const* a, char const* b, std::size_t limit) {
  std::size_t equal = 0;
  while (equal < limit && a[equal] == b[equal] && a[equal] != 0) ++equal;
  return equal < limit ? equal + 1 : limit;
}

}  // namespace

namespace mscclpp::sim {

std::uint64_t instrumentedUnits() noexcept { return units; }

}  // namespace mscclpp::sim

#define MSCCLPP_HERE __builtin_return_address(0)

// ---- plain accesses
// --------------------------------------------------------------------------------------------------

#define MSCCLPP_ACCESS(name, bytes, write) \
  void name(void* address) { mscclpp::sim::hookAccess(address, bytes, write, MSCCLPP_HERE); }

#define MSCCLPP_ACCESSES(bytes)                                       \
  MSCCLPP_ACCESS(__tsan_read##bytes, bytes, false)                    \
  MSCCLPP_ACCESS(__tsan_write##bytes, bytes, true)                    \
  MSCCLPP_ACCESS(__tsan_unaligned_read##bytes, bytes, false)          \
  MSCCLPP_ACCESS(__tsan_unaligned_write##bytes, bytes, true)          \
  MSCCLPP_ACCESS(__tsan_volatile_read##bytes, bytes, false)           \
  MSCCLPP_ACCESS(__tsan_volatile_write##bytes, bytes, true)           \
  MSCCLPP_ACCESS(__tsan_unaligned_volatile_read##bytes, bytes, false) \
  MSCCLPP_ACCESS(__tsan_unaligned_volatile_write##bytes, bytes, true) \
  void __tsan_read_write##bytes(void* address) {                      \
    mscclpp::sim::hookAccess(address, bytes, false, MSCCLPP_HERE);    \
    mscclpp::sim::hookAccess(address, bytes, true, MSCCLPP_HERE);     \
  }                                                                   \
  void __tsan_unaligned_read_write##bytes(void* address) {            \
    mscclpp::sim::hookAccess(address, bytes, false, MSCCLPP_HERE);    \
    mscclpp::sim::hookAccess(address, bytes, true, MSCCLPP_HERE);     \
  }

// ---- atomics
// ---------------------------------------------------------------------------------------------------------

#define MSCCLPP_FETCH(bits, T, name, kind, operand)                                                        \
  T __tsan_atomic##bits##_##name(T volatile* address, T value, int order) {                                \
    return static_cast<T>(mscclpp::sim::hookUpdate(const_cast<T*>(address), sizeof(T), UpdateKind::kind,   \
                                                   static_cast<std::uint64_t>(operand), 0, orderOf(order), \
                                                   MSCCLPP_HERE));                                         \
  }

#define MSCCLPP_COMPARE_EXCHANGE(bits, T, name)                                                                    \
  int __tsan_atomic##bits##_compare_exchange_##name(T volatile* address, T* expected, T desired, int order, int) { \
    auto const before = *expected;                                                                                 \
    *expected =                                                                                                    \
        static_cast<T>(mscclpp::sim::hookUpdate(const_cast<T*>(address), sizeof(T), UpdateKind::compareExchange,   \
                                                desired, before, orderOf(order), MSCCLPP_HERE));                   \
    return *expected == before;                                                                                    \
  }

#define MSCCLPP_ATOMICS(bits, T)                                                                                    \
  T __tsan_atomic##bits##_load(T const volatile* address, int order) {                                              \
    return static_cast<T>(                                                                                          \
        mscclpp::sim::hookLoad(const_cast<T const*>(address), sizeof(T), orderOf(order), MSCCLPP_HERE));            \
  }                                                                                                                 \
  void __tsan_atomic##bits##_store(T volatile* address, T value, int order) {                                       \
    mscclpp::sim::hookStore(const_cast<T*>(address), sizeof(T), value, orderOf(order), MSCCLPP_HERE);               \
  }                                                                                                                 \
  MSCCLPP_FETCH(bits, T, exchange, exchange, value)                                                                 \
  MSCCLPP_FETCH(bits, T, fetch_add, add, value)                                                                     \
  MSCCLPP_FETCH(bits, T, fetch_sub, add, ~std::uint64_t{value} + 1)                                                 \
  MSCCLPP_FETCH(bits, T, fetch_and, bitAnd, value)                                                                  \
  MSCCLPP_FETCH(bits, T, fetch_or, bitOr, value)                                                                    \
  MSCCLPP_FETCH(bits, T, fetch_xor, bitXor, value)                                                                  \
  MSCCLPP_FETCH(bits, T, fetch_nand, bitNand, value)                                                                \
  MSCCLPP_COMPARE_EXCHANGE(bits, T, strong)                                                                         \
  MSCCLPP_COMPARE_EXCHANGE(bits, T, weak)                                                                           \
  T __tsan_atomic##bits##_compare_exchange_val(T volatile* address, T expected, T desired, int order, int) {        \
    return static_cast<T>(mscclpp::sim::hookUpdate(const_cast<T*>(address), sizeof(T), UpdateKind::compareExchange, \
                                                   desired, expected, orderOf(order), MSCCLPP_HERE));               \
  }

#define MSCCLPP_WIDE_FETCH(name, result)                                       \
  Wide __tsan_atomic128_##name(Wide volatile* address, Wide value, int) {      \
    return updateWide(address, [value](Wide seen) -> Wide { return result; }); \
  }

extern "C" {

void __tsan_init() { ++units; }
void __tsan_func_entry(void* code) { mscclpp::sim::hookEnter(code); }
void __tsan_func_exit() { mscclpp::sim::hookLeave(); }

MSCCLPP_ACCESSES(1)
MSCCLPP_ACCESSES(2)
MSCCLPP_ACCESSES(4)
MSCCLPP_ACCESSES(8)
MSCCLPP_ACCESSES(16)

void __tsan_read_range(void* address, std::size_t bytes) {
  mscclpp::sim::hookAccess(address, bytes, false, MSCCLPP_HERE);
}
void __tsan_write_range(void* address, std::size_t bytes) {
  mscclpp::sim::hookAccess(address, bytes, true, MSCCLPP_HERE);
}
void __tsan_vptr_update(void** address, void*) { mscclpp::sim::hookAccess(address, sizeof(void*), true, MSCCLPP_HERE); }
void __tsan_vptr_read(void** address) { mscclpp::sim::hookAccess(address, sizeof(void*), false, MSCCLPP_HERE); }

MSCCLPP_ATOMICS(8, std::uint8_t)
MSCCLPP_ATOMICS(16, std::uint16_t)
MSCCLPP_ATOMICS(32, std::uint32_t)
MSCCLPP_ATOMICS(64, std::uint64_t)

Wide __tsan_atomic128_load(Wide const volatile* address, int) {
  return updateWide(const_cast<Wide volatile*>(address), [](Wide seen) { return seen; });
}
void __tsan_atomic128_store(Wide volatile* address, Wide value, int) {
  updateWide(address, [value](Wide) { return value; });
}
MSCCLPP_WIDE_FETCH(exchange, (static_cast<void>(seen), value))
MSCCLPP_WIDE_FETCH(fetch_add, seen + value)
MSCCLPP_WIDE_FETCH(fetch_sub, seen - value)
MSCCLPP_WIDE_FETCH(fetch_and, seen& value)
MSCCLPP_WIDE_FETCH(fetch_or, seen | value)
MSCCLPP_WIDE_FETCH(fetch_xor, seen ^ value)
MSCCLPP_WIDE_FETCH(fetch_nand, ~(seen& value))
Wide __tsan_atomic128_compare_exchange_val(Wide volatile* address, Wide expected, Wide desired, int, int) {
  return replaceWide(address, expected, desired);
}
int __tsan_atomic128_compare_exchange_strong(Wide volatile* address, Wide* expected, Wide desired, int, int) {
  auto const before = *expected;
  *expected = replaceWide(address, before, desired);
  return *expected == before;
}
int __tsan_atomic128_compare_exchange_weak(Wide volatile* address, Wide* expected, Wide desired, int, int) {
  return __tsan_atomic128_compare_exchange_strong(address, expected, desired, 0, 0);
}

void __tsan_atomic_thread_fence(int order) { mscclpp::sim::hookFence(orderOf(order), MSCCLPP_HERE); }
void __tsan_atomic_signal_fence(int) {}

void* __real_memcpy(void* to, void const* from, std::size_t bytes);
void* __real_memmove(void* to, void const* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
int __real_memcmp(void const* a, void const* b, std::size_t bytes);
void* __real_memchr(void const* from, int value, std::size_t bytes);
std::size_t __real_strlen(char const* text);
int __real_strncmp(char const* a, char const* b, std::size_t limit);

#define MSCCLPP_BLOCK_CALLS(prefix)                                      \
  void* prefix##memcpy(void* to, void const* from, std::size_t bytes) {  \
    noteCopy(to, from, bytes, MSCCLPP_HERE);                             \
    return __real_memcpy(to, from, bytes);                               \
  }                                                                      \
  void* prefix##memmove(void* to, void const* from, std::size_t bytes) { \
    noteCopy(to, from, bytes, MSCCLPP_HERE);                             \
    return __real_memmove(to, from, bytes);                              \
  }                                                                      \
  void* prefix##memset(void* to, int value, std::size_t bytes) {         \
    mscclpp::sim::hookAccess(to, bytes, true, MSCCLPP_HERE);             \
    return __real_memset(to, value, bytes);                              \
  }

MSCCLPP_BLOCK_CALLS(__wrap_)
MSCCLPP_BLOCK_CALLS(__tsan_)  // what Clang emits for them from version 15 on

void* __wrap_mempcpy(void* to, void const* from, std::size_t bytes) {
  noteCopy(to, from, bytes, MSCCLPP_HERE);
  return static_cast<char*>(__real_memcpy(to, from, bytes)) + bytes;
}
void __wrap_bcopy(void const* from, void* to, std::size_t bytes) {
  noteCopy(to, from, bytes, MSCCLPP_HERE);
  __real_memmove(to, from, bytes);
}
void __wrap_bzero(void* to, std::size_t bytes) {
  mscclpp::sim::hookAccess(to, bytes, true, MSCCLPP_HERE);
  __real_memset(to, 0, bytes);
}
int __wrap_memcmp(void const* a, void const* b, std::size_t bytes) {
  noteReads(a, b, bytes, MSCCLPP_HERE);
  return __real_memcmp(a, b, bytes);
}
int __wrap_bcmp(void const* a, void const* b, std::size_t bytes) {
  noteReads(a, b, bytes, MSCCLPP_HERE);
  return __real_memcmp(a, b, bytes);
}
void* __wrap_memchr(void const* from, int value, std::size_t bytes) {
  auto* const found = static_cast<char*>(__real_memchr(from, value, bytes));
  auto const* const begin = static_cast<char const*>(from);
  auto const read = found == nullptr ? bytes : static_cast<std::size_t>(found - begin) + 1;
  mscclpp::sim::hookAccess(from, read, false, MSCCLPP_HERE);
  return found;
}
std::size_t __wrap_strlen(char const* text) {
  auto const length = __real_strlen(text);
  mscclpp::sim::hookAccess(text, length + 1, false, MSCCLPP_HERE);
  return length;
}
int __wrap_strcmp(char const* a, char const* b) {
  noteReads(a, b, lengthCompared(a, b, SIZE_MAX), MSCCLPP_HERE);
  return __real_strncmp(a, b, SIZE_MAX);
}
int __wrap_strncmp(char const* a, char const* b, std::size_t limit) {
  noteReads(a, b, lengthCompared(a, b, limit), MSCCLPP_HERE);
  return __real_strncmp(a, b, limit);
}
char* __wrap_strcpy(char* to, char const* from) {
  auto const bytes = __real_strlen(from) + 1;
  noteCopy(to, from, bytes, MSCCLPP_HERE);
  return static_cast<char*>(__real_memcpy(to, from, bytes));
}
char* __wrap_stpcpy(char* to, char const* from) {
  auto const bytes = __real_strlen(from) + 1;
  noteCopy(to, from, bytes, MSCCLPP_HERE);
  return static_cast<char*>(__real_memcpy(to, from, bytes)) + bytes - 1;
}
char* __wrap_strncpy(char* to, char const* from, std::size_t limit) {
  auto const* const end = static_cast<char const*>(__real_memchr(from, 0, limit));
  auto const bytes = end == nullptr ? limit : static_cast<std::size_t>(end - from) + 1;
  mscclpp::sim::hookAccess(from, bytes, false, MSCCLPP_HERE);
  mscclpp::sim::hookAccess(to, limit, true, MSCCLPP_HERE);
  __real_memset(to, 0, limit);
  return static_cast<char*>(__real_memcpy(to, from, bytes));
}

void __wrap___atomic_load(std::size_t bytes, void volatile* address, void* to, int) {
  withOddAtomic(bytes, address, [&](void* word) { __real_memcpy(to, word, bytes); });
}
void __wrap___atomic_store(std::size_t bytes, void volatile* address, void const* from, int) {
  withOddAtomic(bytes, address, [&](void* word) { __real_memcpy(word, from, bytes); });
}
void __wrap___atomic_exchange(std::size_t bytes, void volatile* address, void const* from, void* to, int) {
  withOddAtomic(bytes, address, [&](void* word) {
    __real_memcpy(to, word, bytes);
    __real_memcpy(word, from, bytes);
  });
}
bool __wrap___atomic_compare_exchange(std::size_t bytes, void volatile* address, void* expected, void const* desired,
                                      int, int) {
  return withOddAtomic(bytes, address, [&](void* word) {
    bool const equal = __real_memcmp(word, expected, bytes) == 0;
    __real_memcpy(equal ? word : expected, equal ? desired : word, bytes);
    return equal;
  });
}

void __ubsan_handle_type_mismatch_v1(void* access, void* address) { mscclpp::sim::misaligned(access, address); }
// Clang's, where a program has told it of an alignment that is not there: what is accessed is looked at by itself.
void __ubsan_handle_alignment_assumption(void*, void*, void*, void*) {}

// Code that a compiler made for its own ends, and the lock bit inside of std::atomic<std::shared_ptr>: atomics, which
// are seen by themselves.
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}
void __tsan_mutex_create(void*, unsigned) {}
void __tsan_mutex_destroy(void*, unsigned) {}
void __tsan_mutex_pre_lock(void*, unsigned) {}
void __tsan_mutex_post_lock(void*, unsigned, int) {}
int __tsan_mutex_pre_unlock(void*, unsigned) { return 0; }
void __tsan_mutex_post_unlock(void*, unsigned) {}
void __tsan_mutex_pre_signal(void*, unsigned) {}
void __tsan_mutex_post_signal(void*, unsigned) {}

}  // extern "C"
