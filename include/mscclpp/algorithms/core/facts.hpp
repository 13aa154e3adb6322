// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What schedules and transports state of themselves for whoever launches a composition of them, offers it, or predicts
// its time. The host reads these; kernels do not. All but the launch of a transport in a catalogue may be left out by a
// user's own types, and then is as the functions below say.
//
//   a transport   launch       how many threads are of use (LaunchPolicy)
//                 onWire       bytes stored for a byte of data
//                 sharedBytes  dynamic shared memory of a block
//                 piece        most bytes between two signals, of schedules that go in pieces: longer ones cost fewer
//                              signals, shorter ones let the next rank begin sooner
//   a schedule    rankOrder    contributions are combined in rank order and rounded once, so that bits depend on
//                              nothing else
//                 dealsOut     a buffer without parts is dealt out, and each rank works on a share of it
//                 fixedRanks   is faster when compiled for one number of ranks
//                 windows      which buffers lie in symmetric memory, by collective
//                 movement     what goes where (Volume -> Movement)
//                              either as windows<Tr>, movement<Tr> where the transport matters
//                 spreadBelow<Tr>   up to so many threads in all, blocks have half as many
//                 leastThreads, leastBlocks, reduces<T, Op>
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mscclpp/algorithms/core/traits.hpp"

namespace mscclpp {

struct LaunchPolicy {
  std::uint64_t perThread = 16;  // bytes of data that a thread moves in a round
  std::uint32_t threads = 256;   // of a block
  std::uint32_t largestThreads = 256;
  std::uint32_t largestBlocks = 132;
  std::uint32_t crowdedThreads = 0;  // largestThreads where the grid may have fewer than largestBlocks; 0: the same
};

// Buffers that peers read or write, so that they lie in symmetric memory.
struct Windows {
  bool in = false;
  bool out = false;
};

// A call whose bytes are counted.
struct Volume {
  Collective collective = Collective::allReduce;
  double ranks = 1;
  double bytes = 0;   // of the larger buffer
  double onWire = 1;  // of the transport

  constexpr double peers() const { return ranks - 1; }
  // Of the peers, where the work is theirs: a team of one has it all the same.
  constexpr double others() const { return ranks > 2 ? ranks - 1 : 1; }
  // What one rank has, or gets, of the whole.
  constexpr double part() const { return traitsOf(collective).hasParts() ? bytes / ranks : bytes; }
};

// What goes where, in bytes: of the rank that has most to do.
struct Traffic {
  double part = 0;    // to one peer in one exchange
  double sent = 0;    // over the busiest link of a GPU, in one direction
  double stored = 0;  // to peers by the multiprocessors of one rank
  double local = 0;   // stored at home, and loaded once it has come
};

// How a schedule's steps follow each other, by which its time is predicted.
enum class Pace : std::uint8_t {
  rounds,  // through the workspaces, a payload a thread, and each round waits for the peers
  stream,  // straight between the buffers, between two barriers
  chain,   // from neighbour to neighbour in pieces
};

struct Movement {
  Traffic traffic;
  Pace pace = Pace::rounds;
  int exchanges = 1;   // of a round, one behind the other
  int barriers = 0;    // beside those of the pace
  bool loads = false;  // ranks load from their peers, rather than store to them
};

// Everybody's part for each peer, through the workspaces.
constexpr Movement oneExchange(Volume const& of) {
  auto const toOne = of.part();
  auto const toAll = toOne * of.peers();
  Traffic traffic{.part = toOne, .sent = toAll * of.onWire};
  auto const traits = traitsOf(of.collective);
  if (traits.in.rootOnly) {  // the root only sends
    traffic.stored = traffic.sent;
    traffic.local = toOne;
  } else if (traits.out.rootOnly) {
    traffic.local = traffic.sent + (traits.reduces ? toOne : of.bytes);
  } else {
    traffic.stored = traffic.sent;
    traffic.local = traffic.sent + toOne + (traits.reduces ? 0 : toAll);
  }
  return {traffic};
}

inline namespace MSCCLPP_BACKEND {

// Each has the fact of its name, or what holds for a schedule that does not state it: contributions are combined in
// rank order, nothing is dealt out, a fixed number of ranks is faster, no buffer lies in symmetric memory. A buffer
// with parts is never dealt out, whatever is stated.
template <class S>
constexpr bool isRankOrder() {
  if constexpr (requires { S::rankOrder; }) return S::rankOrder;
  return true;
}
template <class S>
constexpr bool dealsOut(Collective collective) {
  if constexpr (requires { S::dealsOut(collective); }) {
    return S::dealsOut(collective) && !traitsOf(collective).hasParts();
  }
  return false;
}
template <class S>
constexpr bool isFasterForFixedRanks() {
  if constexpr (requires { S::fixedRanks; }) return S::fixedRanks;
  return true;
}
template <class S, class Tr>
constexpr Windows windowsOf(Collective collective) {
  if constexpr (requires { S::template windows<Tr>(collective); }) {
    return S::template windows<Tr>(collective);
  } else if constexpr (requires { S::windows(collective); }) {
    return S::windows(collective);
  }
  return {};
}
// None of a schedule that does not state it.
template <class S, class Tr>
constexpr std::optional<Movement> movementOf(Volume const& of) {
  if constexpr (requires { S::template movement<Tr>(of); }) {
    return S::template movement<Tr>(of);
  } else if constexpr (requires { S::movement(of); }) {
    return S::movement(of);
  }
  return std::nullopt;
}
template <class S>
constexpr unsigned leastThreadsOf() {
  if constexpr (requires { S::leastThreads; }) return S::leastThreads;
  return 1;
}
template <class S>
constexpr unsigned leastBlocksOf() {
  if constexpr (requires { S::leastBlocks; }) return S::leastBlocks;
  return 1;
}
template <class S, class Tr>
constexpr std::uint32_t spreadBelowOf() {
  if constexpr (requires { S::template spreadBelow<Tr>; }) return S::template spreadBelow<Tr>;
  return 0;
}
template <class S, class T, class Op>
constexpr bool canReduce() {
  if constexpr (requires { S::template reduces<T, Op>; }) return S::template reduces<T, Op>;
  return true;
}

// Dynamic shared memory of a block, in bytes, which the launch asks for; 0 where the transport does not state it.
template <class Tr>
constexpr std::size_t sharedBytesOf() {
  if constexpr (requires { Tr::sharedBytes; }) return Tr::sharedBytes;
  return 0;
}
// A value, since kernels read it too.
template <class Tr>
inline constexpr std::uint32_t longestPiece = 65536;
template <class Tr>
requires requires { Tr::piece; }
inline constexpr std::uint32_t longestPiece<Tr> = Tr::piece;
// Whether it goes through the switch, so that team and windows need multicast addresses.
template <class Tr>
inline constexpr bool throughSwitch = Tr::requirement(1, 1, 1).multicast != 0;

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
