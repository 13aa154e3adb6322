// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Accesses to multicast addresses on an NVIDIA GPU. Twin of arch/sim/multimem.hpp; device/multimem.hpp has the contract
// and says which types and operations there are.
//
// One PTX instruction each. One source is compiled for several generations at once, so what a generation lacks traps
// when it is reached; code that has another way asks hasMultimem() with `if constexpr`.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/arch/cuda/thread.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE constexpr bool hasMultimem() {
#if __CUDA_ARCH__ >= 900
  return true;
#else
  return false;
#endif
}

// Reductions of FP8, which only code for one generation, or family of GPUs, may hold (sm_100a, sm_100f).
MSCCLPP_DEVICE constexpr bool hasMultimemFloat8() {
#if __CUDA_ARCH__ >= 1000 && (defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__))
  return true;
#else
  return false;
#endif
}

[[noreturn]] MSCCLPP_DEVICE void noMultimem() {
  trap(
      "multicast accesses need a GPU of compute capability 9.0 or later, FP8 reductions one of the 10.0 family, and "
      "code "
      "compiled for it; see hasMultimem() and hasMultimemFloat8()");
}

// The parts of an instruction's name.
template <Order O>
struct MultimemOrder;
template <>
struct MultimemOrder<Order::relaxed> {
  static constexpr char text[] = ".relaxed";
};
template <>
struct MultimemOrder<Order::acquire> {
  static constexpr char text[] = ".acquire";
};
template <>
struct MultimemOrder<Order::release> {
  static constexpr char text[] = ".release";
};

template <Scope S>
struct MultimemScope;
template <>
struct MultimemScope<Scope::block> {
  static constexpr char text[] = ".cta";
};
template <>
struct MultimemScope<Scope::device> {
  static constexpr char text[] = ".gpu";
};
template <>
struct MultimemScope<Scope::system> {
  static constexpr char text[] = ".sys";
};

template <class Op>
struct MultimemOp;
template <>
struct MultimemOp<Sum> {
  static constexpr char text[] = ".add";
};
template <>
struct MultimemOp<Min> {
  static constexpr char text[] = ".min";
};
template <>
struct MultimemOp<Max> {
  static constexpr char text[] = ".max";
};

template <class T, class Op>
struct MultimemType;
template <class Op>
struct MultimemType<float, Op> {
  static constexpr char text[] = ".f32";
};
template <class Op>
struct MultimemType<double, Op> {
  static constexpr char text[] = ".f64";
};
template <class Op>
struct MultimemType<Half, Op> {
  static constexpr char text[] = ".f16x2";
};
template <class Op>
struct MultimemType<BFloat16, Op> {
  static constexpr char text[] = ".bf16x2";
};
template <class Op>
struct MultimemType<Float8E4M3, Op> {
  static constexpr char text[] = ".e4m3x4";
};
template <class Op>
struct MultimemType<Float8E5M2, Op> {
  static constexpr char text[] = ".e5m2x4";
};
template <std::signed_integral T, class Op>
requires(sizeof(T) == 4) struct MultimemType<T, Op> {
  static constexpr char text[] = ".s32";
};
template <std::unsigned_integral T, class Op>
requires(sizeof(T) == 4) struct MultimemType<T, Op> {
  static constexpr char text[] = ".u32";
};
template <std::unsigned_integral T, class Op>
requires(sizeof(T) == 8) struct MultimemType<T, Op> {
  static constexpr char text[] = ".u64";
};
template <std::signed_integral T, class Op>
requires(sizeof(T) == 8) struct MultimemType<T, Op> {
  static constexpr char text[] = ".s64";
};
// There is no addition of .s64; that of .u64 gives the same bits.
template <std::signed_integral T>
requires(sizeof(T) == 8) struct MultimemType<T, Sum> : MultimemType<std::uint64_t, Sum> {
};

struct MultimemDefaultPrecision {
  static constexpr char text[] = "";
};
struct MultimemFloat32Precision {
  static constexpr char text[] = ".acc::f32";
};
struct MultimemFloat16Precision {
  static constexpr char text[] = ".acc::f16";
};
template <class Op, class Acc, class T>
using MultimemPrecision =
    std::conditional_t<std::same_as<Op, Sum> && sizeof(T) == 2 && std::same_as<Acc, float>, MultimemFloat32Precision,
                       std::conditional_t<std::same_as<Op, Sum> && sizeof(T) == 1 && std::same_as<Acc, Half>,
                                          MultimemFloat16Precision, MultimemDefaultPrecision>>;

// Elements wider than a word move in 64-bit registers, all others in words.
template <class T, unsigned N>
inline constexpr unsigned multimemWords = N * sizeof(T) / 4;

template <class T>
MSCCLPP_DEVICE constexpr bool multimemCompiles() {
  return isSmallFloat<T> && sizeof(T) == 1 ? hasMultimemFloat8() : hasMultimem();
}

template <Order O, Scope S, class Op, class Acc, class T, unsigned N>
MSCCLPP_DEVICE Vector<T, N> multimemLoadReduce(void const* address) {
  if constexpr (!multimemCompiles<T>()) {
    noMultimem();
  } else if constexpr (sizeof(T) == 8) {
    std::uint64_t bits;
    asm volatile("multimem.ld_reduce%2%3.global%4%5 %0, [%1];"
                 : "=l"(bits)
                 : "l"(address), "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text), "C"(MultimemOp<Op>::text),
                   "C"(MultimemType<T, Op>::text)
                 : "memory");
    return bitCast<Vector<T, N>>(bits);
  } else {
    constexpr unsigned words = multimemWords<T, N>;
    using Precision = MultimemPrecision<Op, Acc, T>;
    Payload<words> value;
    if constexpr (words == 1) {
      asm volatile("multimem.ld_reduce%2%3.global%4%5%6 %0, [%1];"
                   : "=r"(value.word[0])
                   : "l"(address), "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text), "C"(MultimemOp<Op>::text),
                     "C"(Precision::text), "C"(MultimemType<T, Op>::text)
                   : "memory");
    } else if constexpr (words == 2) {
      asm volatile("multimem.ld_reduce%3%4.global%5%6.v2%7 {%0,%1}, [%2];"
                   : "=r"(value.word[0]), "=r"(value.word[1])
                   : "l"(address), "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text), "C"(MultimemOp<Op>::text),
                     "C"(Precision::text), "C"(MultimemType<T, Op>::text)
                   : "memory");
    } else {
      asm volatile("multimem.ld_reduce%5%6.global%7%8.v4%9 {%0,%1,%2,%3}, [%4];"
                   : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
                   : "l"(address), "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text), "C"(MultimemOp<Op>::text),
                     "C"(Precision::text), "C"(MultimemType<T, Op>::text)
                   : "memory");
    }
    return bitCast<Vector<T, N>>(value);
  }
}

// Bits are bits: the type does not matter.
template <Order O, Scope S, class T, unsigned N>
MSCCLPP_DEVICE void multimemStore(void* address, Vector<T, N> const& value) {
  if constexpr (!hasMultimem()) {
    noMultimem();
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("multimem.st%2%3.global.b64 [%0], %1;" ::"l"(address), "l"(bitCast<std::uint64_t>(value)),
                 "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text)
                 : "memory");
  } else {
    constexpr unsigned words = multimemWords<T, N>;
    auto const bits = bitCast<Payload<words>>(value);
    if constexpr (words == 1) {
      asm volatile("multimem.st%2%3.global.b32 [%0], %1;" ::"l"(address), "r"(bits.word[0]),
                   "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text)
                   : "memory");
    } else if constexpr (words == 2) {
      asm volatile("multimem.st%3%4.global.v2.f32 [%0], {%1,%2};" ::"l"(address), "r"(bits.word[0]), "r"(bits.word[1]),
                   "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text)
                   : "memory");
    } else {
      asm volatile("multimem.st%5%6.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(bits.word[0]),
                   "r"(bits.word[1]), "r"(bits.word[2]), "r"(bits.word[3]), "C"(MultimemOrder<O>::text),
                   "C"(MultimemScope<S>::text)
                   : "memory");
    }
  }
}

template <Order O, Scope S, class Op, class T, unsigned N>
MSCCLPP_DEVICE void multimemStoreReduce(void* address, Vector<T, N> const& value) {
  if constexpr (!hasMultimem()) {
    noMultimem();
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("multimem.red%2%3.global%4%5 [%0], %1;" ::"l"(address), "l"(bitCast<std::uint64_t>(value)),
                 "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text), "C"(MultimemOp<Op>::text),
                 "C"(MultimemType<T, Op>::text)
                 : "memory");
  } else {
    constexpr unsigned words = multimemWords<T, N>;
    auto const bits = bitCast<Payload<words>>(value);
    if constexpr (words == 1) {
      asm volatile("multimem.red%2%3.global%4%5 [%0], %1;" ::"l"(address), "r"(bits.word[0]),
                   "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text), "C"(MultimemOp<Op>::text),
                   "C"(MultimemType<T, Op>::text)
                   : "memory");
    } else if constexpr (words == 2) {
      asm volatile("multimem.red%3%4.global%5.v2%6 [%0], {%1,%2};" ::"l"(address), "r"(bits.word[0]), "r"(bits.word[1]),
                   "C"(MultimemOrder<O>::text), "C"(MultimemScope<S>::text), "C"(MultimemOp<Op>::text),
                   "C"(MultimemType<T, Op>::text)
                   : "memory");
    } else {
      asm volatile("multimem.red%5%6.global%7.v4%8 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(bits.word[0]),
                   "r"(bits.word[1]), "r"(bits.word[2]), "r"(bits.word[3]), "C"(MultimemOrder<O>::text),
                   "C"(MultimemScope<S>::text), "C"(MultimemOp<Op>::text), "C"(MultimemType<T, Op>::text)
                   : "memory");
    }
  }
}

// What went by one address of a memory is seen by another one of it.
MSCCLPP_DEVICE void multimemFence() {
  if constexpr (hasMultimem()) {
    asm volatile("fence.proxy.alias;" ::: "memory");
  } else {
    noMultimem();
  }
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
