// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each collective sends where: plans for one exchange (schedule/one_exchange.hpp).
//
//   largest()               elements of the largest part that any rank sends another, the same on every rank: it says
//                           how many rounds there are
//   send(peer)              what goes to that rank; no elements where nothing does
//   receive(peer)           where what comes from it is stored; of the own rank, where what it sends itself is moved
//   own()                   this rank's contribution to the result that it makes
//   results(), result(i)    in how many places the result is stored, and each; no elements where there is none
//   firstElement()          the index from which the epilogue counts
//
// Every thread asks, round by round: some additions, and loads where parts are VariableParts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/parts.hpp"
#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

// `in` of rank r becomes part r of everybody's `out`.
template <ElementSource S, Parts P>
struct GatherToAllPlan {
  using Element = typename S::Element;
  static constexpr bool equal = P::equal;
  static constexpr bool sameToAll = true;
  S in;
  Element* out;
  P parts;

  MSCCLPP_DEVICE std::size_t largest() const { return parts.largest(); }
  MSCCLPP_DEVICE S send(int) const { return in; }
  MSCCLPP_DEVICE View<Element> receive(int peer) const { return partOf(out, parts, peer); }
};

// Part p of `in` becomes part r of rank p's `out`, r being this rank.
template <ElementSource S, Parts P>
struct AllToAllPlan {
  using Element = typename S::Element;
  static constexpr bool equal = P::equal;
  static constexpr bool sameToAll = false;
  S in;
  Element* out;
  P inParts;
  P outParts;
  std::size_t largestPart;  // of any pair of ranks

  MSCCLPP_DEVICE std::size_t largest() const { return largestPart; }
  MSCCLPP_DEVICE S send(int peer) const { return partOf(in, inParts, peer); }
  MSCCLPP_DEVICE View<Element> receive(int peer) const { return partOf(out, outParts, peer); }
};

// The root's `in` becomes everybody's `out`.
template <ElementSource S>
struct BroadcastPlan {
  using Element = typename S::Element;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = true;
  S in;
  View<Element> out;
  int rank;
  int root;

  MSCCLPP_DEVICE std::size_t largest() const { return out.count; }
  MSCCLPP_DEVICE S send(int) const { return given<Element>(rank == root, in.part(0, out.count), out.data); }
  MSCCLPP_DEVICE View<Element> receive(int peer) const { return {out.data, peer == root ? out.count : 0}; }
};

// Part p of the root's `in` becomes the `out` of rank p.
template <ElementSource S, Parts P>
struct ScatterPlan {
  using Element = typename S::Element;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = false;
  S in;
  View<Element> out;
  P parts;
  int rank;
  int root;

  MSCCLPP_DEVICE std::size_t largest() const { return parts.largest(); }
  MSCCLPP_DEVICE S send(int peer) const { return given<Element>(rank == root, partOf(in, parts, peer), out.data); }
  MSCCLPP_DEVICE View<Element> receive(int peer) const { return {out.data, peer == root ? out.count : 0}; }
};

// `in` of rank r becomes part r of the root's `out`.
template <ElementSource S, Parts P>
struct GatherPlan {
  using Element = typename S::Element;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = false;
  S in;
  Element* out;
  P parts;
  int rank;
  int root;

  MSCCLPP_DEVICE std::size_t largest() const { return parts.largest(); }
  MSCCLPP_DEVICE S send(int peer) const { return in.part(0, peer == root ? in.count : 0); }
  MSCCLPP_DEVICE View<Element> receive(int peer) const {
    if (rank == root) return partOf(out, parts, peer);
    return {placeOf(in, out), 0};
  }
};

// Part p of everybody's `in` is reduced to the `out` of rank p.
template <ElementSource S, Parts P>
struct ReduceScatterPlan {
  using Element = typename S::Element;
  static constexpr bool equal = P::equal;
  static constexpr bool sameToAll = false;
  static constexpr bool remote = false;
  S in;
  Element* out;
  P parts;
  int rank;

  MSCCLPP_DEVICE std::size_t largest() const { return parts.largest(); }
  MSCCLPP_DEVICE S send(int peer) const { return partOf(in, parts, peer); }
  MSCCLPP_DEVICE S own() const { return send(rank); }
  MSCCLPP_DEVICE int results() const { return 1; }
  MSCCLPP_DEVICE View<Element> result(int) const { return {out, parts.count(rank)}; }
  MSCCLPP_DEVICE std::uint64_t firstElement() const { return 0; }
};

// Everybody's `in` is reduced to the root's `out`.
template <ElementSource S>
struct ReduceToRootPlan {
  using Element = typename S::Element;
  static constexpr bool equal = false;
  static constexpr bool sameToAll = false;
  static constexpr bool remote = false;
  S in;
  Element* out;
  int rank;
  int root;

  MSCCLPP_DEVICE std::size_t largest() const { return in.count; }
  MSCCLPP_DEVICE S send(int peer) const { return in.part(0, peer == root ? in.count : 0); }
  MSCCLPP_DEVICE S own() const { return send(rank); }
  MSCCLPP_DEVICE int results() const { return 1; }
  MSCCLPP_DEVICE View<Element> result(int) const { return {out, rank == root ? in.count : 0}; }
  MSCCLPP_DEVICE std::uint64_t firstElement() const { return 0; }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
