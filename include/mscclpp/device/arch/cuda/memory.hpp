// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory operations with visible order and scope, on an NVIDIA GPU. Twin of arch/sim/memory.hpp.
//
// Every function is one PTX instruction on global memory (<cuda/atomic> offers the same words at two seconds of compile
// time and without the address space). The 16-byte forms are relaxed, system scope, and whole per 8 bytes only, but for
// storeReleaseWords4.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/arch/cuda/thread.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

// PTX names order and scope inside the instruction, so each combination is its own text. These two macros only spell
// them out; they exist in this file alone.
#define MSCCLPP_PTX_SCOPE(ORDER, EMIT)       \
  if constexpr (S == Scope::block) {         \
    EMIT(ORDER, "cta");                      \
  } else if constexpr (S == Scope::device) { \
    EMIT(ORDER, "gpu");                      \
  } else {                                   \
    EMIT(ORDER, "sys");                      \
  }

#define MSCCLPP_PTX_ORDER(EMIT)               \
  if constexpr (O == Order::relaxed) {        \
    MSCCLPP_PTX_SCOPE("relaxed", EMIT)        \
  } else if constexpr (O == Order::acquire) { \
    MSCCLPP_PTX_SCOPE("acquire", EMIT)        \
  } else if constexpr (O == Order::release) { \
    MSCCLPP_PTX_SCOPE("release", EMIT)        \
  } else {                                    \
    MSCCLPP_PTX_SCOPE("acq_rel", EMIT)        \
  }

template <class T>
concept Word = (sizeof(T) == 4 || sizeof(T) == 8) && std::is_trivially_copyable_v<T>;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE T load(T const* address) {
  static_assert(O == Order::relaxed || O == Order::acquire, "a load is relaxed or acquire");
  static_assert(S != Scope::thread, "a load that only its own thread relies on is a plain read");
  BitsOf<T> bits;
#define MSCCLPP_PTX_LOAD(ORDER, SCOPE)                                                                  \
  if constexpr (sizeof(T) == 4)                                                                         \
    asm volatile("ld." ORDER "." SCOPE ".global.b32 %0, [%1];" : "=r"(bits) : "l"(address) : "memory"); \
  else                                                                                                  \
    asm volatile("ld." ORDER "." SCOPE ".global.b64 %0, [%1];" : "=l"(bits) : "l"(address) : "memory")
  if constexpr (O == Order::relaxed) {
    MSCCLPP_PTX_SCOPE("relaxed", MSCCLPP_PTX_LOAD)
  } else {
    MSCCLPP_PTX_SCOPE("acquire", MSCCLPP_PTX_LOAD)
  }
#undef MSCCLPP_PTX_LOAD
  return bitCast<T>(bits);
}

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE void store(T* address, std::type_identity_t<T> value) {
  static_assert(O == Order::relaxed || O == Order::release, "a store is relaxed or release");
  static_assert(S != Scope::thread, "a store that only its own thread relies on is a plain write");
  auto const bits = bitCast<BitsOf<T>>(value);
#define MSCCLPP_PTX_STORE(ORDER, SCOPE)                                                               \
  if constexpr (sizeof(T) == 4)                                                                       \
    asm volatile("st." ORDER "." SCOPE ".global.b32 [%0], %1;" ::"l"(address), "r"(bits) : "memory"); \
  else                                                                                                \
    asm volatile("st." ORDER "." SCOPE ".global.b64 [%0], %1;" ::"l"(address), "l"(bits) : "memory")
  if constexpr (O == Order::relaxed) {
    MSCCLPP_PTX_SCOPE("relaxed", MSCCLPP_PTX_STORE)
  } else {
    MSCCLPP_PTX_SCOPE("release", MSCCLPP_PTX_STORE)
  }
#undef MSCCLPP_PTX_STORE
}

template <Order O, Scope S, Word T>
requires std::is_integral_v<T> MSCCLPP_DEVICE T fetchAdd(T* address, std::type_identity_t<T> value) {
  BitsOf<T> previous;
  auto const bits = static_cast<BitsOf<T>>(value);
#define MSCCLPP_PTX_ADD(ORDER, SCOPE)                                    \
  if constexpr (sizeof(T) == 4)                                          \
    asm volatile("atom." ORDER "." SCOPE ".global.add.u32 %0, [%1], %2;" \
                 : "=r"(previous)                                        \
                 : "l"(address), "r"(bits)                               \
                 : "memory");                                            \
  else                                                                   \
    asm volatile("atom." ORDER "." SCOPE ".global.add.u64 %0, [%1], %2;" \
                 : "=l"(previous)                                        \
                 : "l"(address), "l"(bits)                               \
                 : "memory")
  MSCCLPP_PTX_ORDER(MSCCLPP_PTX_ADD)
#undef MSCCLPP_PTX_ADD
  return static_cast<T>(previous);
}

// Like fetchAdd, without the answer: the memory does the addition and nobody waits for it.
template <Order O, Scope S, Word T>
requires std::is_integral_v<T> MSCCLPP_DEVICE void reduceAdd(T* address, std::type_identity_t<T> value) {
  static_assert(O == Order::relaxed || O == Order::release, "a reduction is relaxed or release");
  auto const bits = static_cast<BitsOf<T>>(value);
#define MSCCLPP_PTX_REDUCE(ORDER, SCOPE)                                                                   \
  if constexpr (sizeof(T) == 4)                                                                            \
    asm volatile("red." ORDER "." SCOPE ".global.add.u32 [%0], %1;" ::"l"(address), "r"(bits) : "memory"); \
  else                                                                                                     \
    asm volatile("red." ORDER "." SCOPE ".global.add.u64 [%0], %1;" ::"l"(address), "l"(bits) : "memory")
  if constexpr (O == Order::relaxed && S == Scope::block && sizeof(T) == 4) {
    asm volatile("red.relaxed.cta.add.u32 [%0], %1;" ::"l"(address), "r"(bits) : "memory");  // in whichever memory
  } else if constexpr (O == Order::relaxed) {
    MSCCLPP_PTX_SCOPE("relaxed", MSCCLPP_PTX_REDUCE)
  } else {
    MSCCLPP_PTX_SCOPE("release", MSCCLPP_PTX_REDUCE)
  }
#undef MSCCLPP_PTX_REDUCE
}

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE T exchange(T* address, std::type_identity_t<T> value) {
  BitsOf<T> previous;
  auto const bits = bitCast<BitsOf<T>>(value);
#define MSCCLPP_PTX_EXCHANGE(ORDER, SCOPE)                                \
  if constexpr (sizeof(T) == 4)                                           \
    asm volatile("atom." ORDER "." SCOPE ".global.exch.b32 %0, [%1], %2;" \
                 : "=r"(previous)                                         \
                 : "l"(address), "r"(bits)                                \
                 : "memory");                                             \
  else                                                                    \
    asm volatile("atom." ORDER "." SCOPE ".global.exch.b64 %0, [%1], %2;" \
                 : "=l"(previous)                                         \
                 : "l"(address), "l"(bits)                                \
                 : "memory")
  MSCCLPP_PTX_ORDER(MSCCLPP_PTX_EXCHANGE)
#undef MSCCLPP_PTX_EXCHANGE
  return bitCast<T>(previous);
}

// On failure `expected` receives the value found.
template <Order O, Scope S, Word T>
MSCCLPP_DEVICE bool compareExchange(T* address, T& expected, std::type_identity_t<T> desired) {
  BitsOf<T> found;
  auto const wanted = bitCast<BitsOf<T>>(expected);
  auto const bits = bitCast<BitsOf<T>>(desired);
#define MSCCLPP_PTX_COMPARE(ORDER, SCOPE)                                    \
  if constexpr (sizeof(T) == 4)                                              \
    asm volatile("atom." ORDER "." SCOPE ".global.cas.b32 %0, [%1], %2, %3;" \
                 : "=r"(found)                                               \
                 : "l"(address), "r"(wanted), "r"(bits)                      \
                 : "memory");                                                \
  else                                                                       \
    asm volatile("atom." ORDER "." SCOPE ".global.cas.b64 %0, [%1], %2, %3;" \
                 : "=l"(found)                                               \
                 : "l"(address), "l"(wanted), "l"(bits)                      \
                 : "memory")
  MSCCLPP_PTX_ORDER(MSCCLPP_PTX_COMPARE)
#undef MSCCLPP_PTX_COMPARE
  expected = bitCast<T>(found);
  return found == wanted;
}

template <Order O, Scope S>
MSCCLPP_DEVICE void fence() {
  static_assert(O == Order::acquireRelease || O == Order::sequential, "a fence is acquireRelease or sequential");
#define MSCCLPP_PTX_FENCE(ORDER, SCOPE) asm volatile("fence." ORDER "." SCOPE ";" ::: "memory")
  if constexpr (O == Order::sequential) {
    MSCCLPP_PTX_SCOPE("sc", MSCCLPP_PTX_FENCE)
  } else {
    MSCCLPP_PTX_SCOPE("acq_rel", MSCCLPP_PTX_FENCE)
  }
#undef MSCCLPP_PTX_FENCE
}

#undef MSCCLPP_PTX_ORDER
#undef MSCCLPP_PTX_SCOPE

// Relaxed accesses whose content carries its own flag need no compiler barrier: nothing else touches those words.
MSCCLPP_DEVICE Words2 loadWords2(Words2 const* address) {
  Words2 v;
  asm volatile("ld.relaxed.sys.global.v2.b32 {%0,%1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(address));
  return v;
}

MSCCLPP_DEVICE void storeWords2(Words2* address, Words2 const& v) {
  asm volatile("st.relaxed.sys.global.v2.b32 [%0], {%1,%2};" ::"l"(address), "r"(v.w[0]), "r"(v.w[1]));
}

MSCCLPP_DEVICE Words4 loadWords4(Words4 const* address) {
  Words4 v;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(address));
  return v;
}

MSCCLPP_DEVICE void storeWords4(Words4* address, Words4 const& v) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(v.w[0]), "r"(v.w[1]),
               "r"(v.w[2]), "r"(v.w[3]));
}

// 16 bytes as one access, with release order and system scope: whoever acquires the second half sees the first.
MSCCLPP_DEVICE void storeReleaseWords4(Words4* address, Words4 const& v) {
  asm volatile(
      "{\n\t"
      ".reg .b64 low, high;\n\t"
      ".reg .b128 all;\n\t"
      "mov.b64 low, {%1,%2};\n\t"
      "mov.b64 high, {%3,%4};\n\t"
      "mov.b128 all, {low,high};\n\t"
      "st.release.sys.global.b128 [%0], all;\n\t"
      "}" ::"l"(address),
      "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
      : "memory");
}

// In pieces, where the lanes of a warp do not execute one instruction together: lane 7 of each line carries what tells
// that the line is there, so its slot is the last to be written and the first to be read.
MSCCLPP_COLD_DEVICE void storeLinesInPieces(Words4* address, Words4 v, bool active) {
  bool const last = threadIndex() % 8 == 7;
  if (active && !last) storeWords4(address, v);
  __threadfence_system();
  __syncwarp();
  if (active && last) storeWords4(address, v);
}

MSCCLPP_COLD_DEVICE Words4 loadLinesInPieces(Words4 const* address, bool active) {
  bool const last = threadIndex() % 8 == 7;
  Words4 v{};
  if (active && last) v = loadWords4(address);
  __threadfence_system();
  __syncwarp();
  if (active && !last) v = loadWords4(address);
  return v;
}

// Called by all 32 lanes of a warp, eight lanes to a 128-byte line, `active` the same for the lanes of a line. Each
// line is one transaction, which NVLink delivers whole, if all lanes execute the one instruction. Lanes that came here
// on different ways meet at __syncwarp(), and may go on one after the other all the same.
MSCCLPP_DEVICE void storeLines(Words4* address, Words4 const& v, bool active) {
  __syncwarp();
  if (__activemask() != 0xffffffffu) [[unlikely]]
    storeLinesInPieces(address, v, active);
  else if (active)
    storeWords4(address, v);
}

MSCCLPP_DEVICE Words4 loadLines(Words4 const* address, bool active) {
  __syncwarp();
  if (__activemask() != 0xffffffffu) [[unlikely]]
    return loadLinesInPieces(address, active);
  return active ? loadWords4(address) : Words4{};
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
