// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a group does together besides meeting: share a value, vote, reduce.
//
// All threads of the group call, at the same place. Within a warp no memory is used; within a block a few words of
// shared memory and two barriers per call.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/device/group.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// The value that thread `from` of the group holds.
template <class T>
MSCCLPP_DEVICE T broadcast(WarpGroup const&, T const& value, unsigned from) {
  return arch::shuffle(value, from);
}

// The same of a block's threads, through shared memory.
template <class T>
MSCCLPP_DEVICE T broadcast(BlockGroup const& group, T const& value, unsigned from) {
  struct Slot;
  T& shared = arch::blockShared<T, Slot>();
  if (group.rank() == from) shared = value;
  group.sync();
  T const result = shared;
  group.sync();
  return result;
}

// Whether it is true of any lane, of all lanes: every lane gets the same answer.
MSCCLPP_DEVICE bool any(WarpGroup const&, bool predicate) { return arch::warpAny(predicate); }
MSCCLPP_DEVICE bool all(WarpGroup const&, bool predicate) { return arch::warpAll(predicate); }

// op(...op(v0, v1)..., v31), combined pairwise: the same order, hence the same bits, in every lane.
template <class T, class Op>
MSCCLPP_DEVICE T reduce(WarpGroup const&, T value, Op const& op) {
  for (unsigned distance = 1; distance < arch::warpSize; distance *= 2) {
    T const other = arch::shuffleXor(value, distance);
    value = (arch::threadIndex() & distance) ? op(other, value) : op(value, other);
  }
  return value;
}

// Warps first, then thread order over the warps' results. The block's size is a multiple of 32.
template <class T, class Op>
MSCCLPP_DEVICE T reduce(BlockGroup const& group, T value, Op const& op) {
  struct Partials {
    T perWarp[32];
  };
  struct Slot;
  Partials& shared = arch::blockShared<Partials, Slot>();
  value = reduce(thisWarp(), value, op);
  if (group.rank() % arch::warpSize == 0) shared.perWarp[group.rank() / arch::warpSize] = value;
  group.sync();
  T result = shared.perWarp[0];
  for (unsigned warp = 1; warp < group.size() / arch::warpSize; ++warp) result = op(result, shared.perWarp[warp]);
  group.sync();
  return result;
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
