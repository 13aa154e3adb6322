// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums that memory makes: parts are added where they arrive, in the order in which they come. So float sums may differ
// from run to run, and small floats are rounded at every addition; slots (slots.hpp) do neither, for more memory. The
// target must hold a value before, zero mostly. From compute capability 9.0 (hasBulkCopies()); elsewhere each traps.
//
//   bulkReduceAdd(dst, src, bytes)        adds block-shared to global memory as bulkStore() copies, by one thread, in
//                                         the same groups and waits (bulk_copy.hpp). float, Half, BFloat16, uint32,
//                                         int32, uint64
//   reduceAdd<Scope>(p, value)            adds a Vector of 16 bytes: 4 floats, 8 Halfs or 8 BFloat16s, at a multiple of
//                                         16 bytes. Scope::device or Scope::system
//
// Order. Relaxed; each element is added on its own. Of bulkReduceAdd that holds among the threads of one device only
// (PTX: .relaxed.gpu): parts of several ranks for one address need reduceAdd<Scope::system>, or come one after the
// other. Whoever reads a sum waits for all parts, as by tile flags; ahead of arrive() the thread of bulk additions
// calls bulkWait(). bulkFence() stands between what ordinary stores of the same kernel wrote to the target, its zeros
// too, and bulk additions.
//
// Cost: an instruction; nobody waits for the addition.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/base/order.hpp"
#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/number.hpp"
#include "mscclpp/device/vector.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/reduce_into.hpp"
#else
#include "mscclpp/device/arch/sim/reduce_into.hpp"
#endif

namespace mscclpp {

// What vectors are added of.
template <class T>
concept VectorAddable = std::same_as<T, float> || std::same_as<T, Half> || std::same_as<T, BFloat16>;

// What bulkReduceAdd() adds.
template <class T>
concept BulkAddable = VectorAddable<T> || std::same_as<T, std::uint32_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::uint64_t>;

inline namespace MSCCLPP_BACKEND {

template <BulkAddable T>
MSCCLPP_DEVICE void bulkReduceAdd(T* dst, T const* src, std::uint32_t bytes) {
  arch::bulkReduceAdd(dst, src, bytes);
}

template <Scope S, VectorAddable T, unsigned N>
MSCCLPP_DEVICE void reduceAdd(T* address, Vector<T, N> const& value) {
  static_assert(sizeof value == 16, "reduceAdd of a vector: 4 floats, or 8 of 16 bits");
  static_assert(S == Scope::device || S == Scope::system, "reduceAdd of a vector reaches a device, or the system");
  arch::reduceAddVector<S>(address, value);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
