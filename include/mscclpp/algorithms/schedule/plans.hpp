// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each collective sends where: plans for one exchange (schedule/one_exchange.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/parts.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// `in` of rank r becomes part r of everybody's `out`.
template <class T, Parts P>
struct GatherToAllPlan {
  using Element = T;
  static constexpr bool equal = P::equal;
  static constexpr bool sameToAll = true;
  View<T const> in;
  T* out;
  P parts;

  MSCCLPP_DEVICE std::size_t largest() const { return parts.largest(); }
  MSCCLPP_DEVICE View<T const> send(int) const { return in; }
  MSCCLPP_DEVICE View<T> receive(int peer) const { return partOf(out, parts, peer); }
};

// Part p of `in` becomes part r of rank p's `out`, r being this rank.
template <class T, Parts P>
struct AllToAllPlan {
  using Element = T;
  static constexpr bool equal = P::equal;
  static constexpr bool sameToAll = false;
  T const* in;
  T* out;
  P inParts;
  P outParts;
  std::size_t largestPart;  // of any pair of ranks

  MSCCLPP_DEVICE std::size_t largest() const { return largestPart; }
  MSCCLPP_DEVICE View<T const> send(int peer) const { return partOf(in, inParts, peer); }
  MSCCLPP_DEVICE View<T> receive(int peer) const { return partOf(out, outParts, peer); }
};

// The root's `in` becomes everybody's `out`.
template <class T>
struct BroadcastPlan {
  using Element = T;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = true;
  View<T const> in;
  View<T> out;
  int rank;
  int root;

  MSCCLPP_DEVICE std::size_t largest() const { return out.count; }
  MSCCLPP_DEVICE View<T const> send(int) const {
    return rank == root ? View<T const>{in.data, out.count} : View<T const>{out.data, 0};
  }
  MSCCLPP_DEVICE View<T> receive(int peer) const { return {out.data, peer == root ? out.count : 0}; }
};

// Part p of the root's `in` becomes the `out` of rank p.
template <class T, Parts P>
struct ScatterPlan {
  using Element = T;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = false;
  T const* in;
  View<T> out;
  P parts;
  int rank;
  int root;

  MSCCLPP_DEVICE std::size_t largest() const { return parts.largest(); }
  MSCCLPP_DEVICE View<T const> send(int peer) const {
    return rank == root ? partOf(in, parts, peer) : View<T const>{out.data, 0};
  }
  MSCCLPP_DEVICE View<T> receive(int peer) const { return {out.data, peer == root ? out.count : 0}; }
};

// `in` of rank r becomes part r of the root's `out`.
template <class T, Parts P>
struct GatherPlan {
  using Element = T;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = false;
  View<T const> in;
  T* out;
  P parts;
  int rank;
  int root;

  MSCCLPP_DEVICE std::size_t largest() const { return parts.largest(); }
  MSCCLPP_DEVICE View<T const> send(int peer) const { return {in.data, peer == root ? in.count : 0}; }
  MSCCLPP_DEVICE View<T> receive(int peer) const {
    if (rank == root) return partOf(out, parts, peer);
    return {const_cast<T*>(in.data), 0};
  }
};

// Part p of everybody's `in` is reduced to the `out` of rank p.
template <class T, Parts P>
struct ReduceScatterPlan {
  using Element = T;
  static constexpr bool equal = P::equal;
  static constexpr bool sameToAll = false;
  static constexpr bool remote = false;
  T const* in;
  T* out;
  P parts;
  int rank;

  MSCCLPP_DEVICE std::size_t largest() const { return parts.largest(); }
  MSCCLPP_DEVICE View<T const> send(int peer) const { return partOf(in, parts, peer); }
  MSCCLPP_DEVICE View<T const> own() const { return send(rank); }
  MSCCLPP_DEVICE int results() const { return 1; }
  MSCCLPP_DEVICE View<T> result(int) const { return {out, parts.count(rank)}; }
  MSCCLPP_DEVICE std::uint64_t firstElement() const { return 0; }
};

// Everybody's `in` is reduced to the root's `out`.
template <class T>
struct ReduceToRootPlan {
  using Element = T;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = false;
  static constexpr bool remote = false;
  View<T const> in;
  T* out;
  int rank;
  int root;

  MSCCLPP_DEVICE std::size_t largest() const { return in.count; }
  MSCCLPP_DEVICE View<T const> send(int peer) const { return {in.data, peer == root ? in.count : 0}; }
  MSCCLPP_DEVICE View<T const> own() const { return send(rank); }
  MSCCLPP_DEVICE int results() const { return 1; }
  MSCCLPP_DEVICE View<T> result(int) const { return {out, rank == root ? in.count : 0}; }
  MSCCLPP_DEVICE std::uint64_t firstElement() const { return 0; }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
