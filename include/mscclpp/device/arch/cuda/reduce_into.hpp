// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Additions to memory, by bulk copies and by vectors, on an NVIDIA GPU. Twin of arch/sim/reduce_into.hpp.
//
// One PTX instruction each; generations without them trap when one is reached (hasBulkCopies()).
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"
#include "mscclpp/device/arch/cuda/bulk_copy.hpp"
#include "mscclpp/device/arch/cuda/thread.hpp"
#include "mscclpp/device/vector.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

[[noreturn]] MSCCLPP_DEVICE void noReduceInto() {
  trap(
      "additions to memory by bulk copies and vectors need a GPU of compute capability 9.0 or later, and code compiled "
      "for it; see hasBulkCopies()");
}

template <class T>
MSCCLPP_DEVICE void bulkReduceAdd(T* dst, T const* src, std::uint32_t bytes) {
  if constexpr (!hasBulkCopies()) {
    noReduceInto();
  } else if constexpr (std::same_as<T, float>) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst),
                 "r"(sharedAddress(src)), "r"(bytes)
                 : "memory");
  } else if constexpr (std::same_as<T, Half>) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;" ::"l"(dst),
                 "r"(sharedAddress(src)), "r"(bytes)
                 : "memory");
  } else if constexpr (std::same_as<T, BFloat16>) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;" ::"l"(dst),
                 "r"(sharedAddress(src)), "r"(bytes)
                 : "memory");
  } else if constexpr (std::same_as<T, std::uint32_t>) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(dst),
                 "r"(sharedAddress(src)), "r"(bytes)
                 : "memory");
  } else if constexpr (std::same_as<T, std::int32_t>) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;" ::"l"(dst),
                 "r"(sharedAddress(src)), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64 [%0], [%1], %2;" ::"l"(dst),
                 "r"(sharedAddress(src)), "r"(bytes)
                 : "memory");
  }
}

template <Scope S, class T, unsigned N>
MSCCLPP_DEVICE void reduceAddVector(T* address, Vector<T, N> const& value) {
  if constexpr (!hasBulkCopies()) {
    noReduceInto();
  } else if constexpr (std::same_as<T, float>) {
    if constexpr (S == Scope::device) {
      asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(address), "f"(value[0]),
                   "f"(value[1]), "f"(value[2]), "f"(value[3])
                   : "memory");
    } else {
      asm volatile("red.relaxed.sys.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(address), "f"(value[0]),
                   "f"(value[1]), "f"(value[2]), "f"(value[3])
                   : "memory");
    }
  } else {
    auto const w = pack(value);
    if constexpr (std::same_as<T, Half> && S == Scope::device) {
      asm volatile("red.relaxed.gpu.global.add.noftz.v4.f16x2 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(w.word[0]),
                   "r"(w.word[1]), "r"(w.word[2]), "r"(w.word[3])
                   : "memory");
    } else if constexpr (std::same_as<T, Half>) {
      asm volatile("red.relaxed.sys.global.add.noftz.v4.f16x2 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(w.word[0]),
                   "r"(w.word[1]), "r"(w.word[2]), "r"(w.word[3])
                   : "memory");
    } else if constexpr (S == Scope::device) {
      asm volatile("red.relaxed.gpu.global.add.noftz.v4.bf16x2 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(w.word[0]),
                   "r"(w.word[1]), "r"(w.word[2]), "r"(w.word[3])
                   : "memory");
    } else {
      asm volatile("red.relaxed.sys.global.add.noftz.v4.bf16x2 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(w.word[0]),
                   "r"(w.word[1]), "r"(w.word[2]), "r"(w.word[3])
                   : "memory");
    }
  }
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
