// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a block, or whoever else acts, knows to have happened: vector clocks over all who act, in three strengths.
//
//   data    may be read: ordered by syncs, barriers, semaphores, full signals, ends of kernels
//   order   may be overwritten: what relaxed signals tell of, besides; what a caller wrote before its kernel began may
//           also be read
//   cause   what was read may be overwritten, and packets: what the arrival of packets tells of, besides. Who sends a
//           packet has read what it holds
//
// An actor's steps between two syncs make a phase. Clocks count completed phases; `cause` also knows single pieces of
// the phase under way, because a step that reads packets and sends others does so slot by slot: who has a packet of one
// piece knows nothing of the step's other pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mscclpp::dsl::detail {

// Where a step stands: what somebody must know of to be behind it.
struct Stamp {
  int actor = -1;  // -1: no step
  int phase = 0;
  int inPhase = 0;  // which of the phase's moving steps
  int piece = 0;    // which of the step's chunks
  int bit = -1;     // which of the phase's pieces that are known one by one; -1: none
  int call = 0;
  int rank = 0, block = 0, step = 0;  // in the program; block -1: the caller of the rank

  constexpr bool exists() const { return actor >= 0; }
  constexpr bool byCaller() const { return block < 0; }
  static constexpr int bits = 64;  // of one phase

  constexpr bool samePiece(Stamp const& other) const {
    return actor == other.actor && phase == other.phase && inPhase == other.inPhase && piece == other.piece;
  }
};

// Actors in groups: compilers, which evaluate all this, copy a group in one step, and skip those nobody has heard of.
class Knowledge {
 public:
  constexpr Knowledge() = default;
  constexpr explicit Knowledge(int actors) : groups_((static_cast<std::size_t>(actors) + groupSize - 1) / groupSize) {}

  constexpr bool knowsData(Stamp const& stamp) const {
    auto const& group = of(stamp.actor);
    return (stamp.byCaller() ? group.order : group.data)[lane(stamp.actor)] > stamp.phase;
  }
  constexpr bool knowsOrder(Stamp const& stamp) const { return of(stamp.actor).order[lane(stamp.actor)] > stamp.phase; }
  constexpr bool knowsCause(Stamp const& stamp) const {
    auto const& cause = of(stamp.actor).cause;
    auto const i = lane(stamp.actor);
    return cause.phases[i] > stamp.phase ||
           (cause.phases[i] == stamp.phase && stamp.bit >= 0 && (cause.pieces[i] >> stamp.bit & 1) != 0);
  }

  constexpr int phasesOf(int actor) const { return of(actor).data[lane(actor)]; }

  constexpr void completePhases(int actor, int phases) {
    auto& group = of(actor);
    auto const i = lane(actor);
    group.heard = true;
    group.data[i] = phases;
    group.order[i] = phases;
    group.cause.phases[i] = phases;
    group.cause.pieces[i] = 0;
  }
  constexpr void completePiece(int actor, int phase, int bit) {
    auto& cause = of(actor).cause;
    auto const i = lane(actor);
    if (cause.phases[i] == phase && bit >= 0) {
      of(actor).heard = true;
      cause.pieces[i] |= std::uint64_t{1} << bit;
    }
  }

  constexpr void join(Knowledge const& other, bool withData = true) {
    Group const* const others = other.groups_.data();
    Group* const own = groups_.data();
    for (std::size_t g = 0, groups = groups_.size(); g < groups; ++g) {
      auto const& theirs = others[g];
      auto& mine = own[g];
      if (!theirs.heard) continue;
      if (!mine.heard) {
        mine = theirs;
        for (std::size_t i = 0; !withData && i < groupSize; ++i) mine.data[i] = 0;
        continue;
      }
      for (std::size_t i = 0; i < groupSize; ++i) {
        if (withData && theirs.data[i] > mine.data[i]) mine.data[i] = theirs.data[i];
        if (theirs.order[i] > mine.order[i]) mine.order[i] = theirs.order[i];
      }
      mine.cause.join(theirs.cause);
    }
  }
  constexpr void joinCause(Knowledge const& other) {
    Group const* const others = other.groups_.data();
    Group* const own = groups_.data();
    for (std::size_t g = 0, groups = groups_.size(); g < groups; ++g) {
      auto const& theirs = others[g];
      auto& mine = own[g];
      if (!theirs.heard) continue;
      if (mine.heard) {
        mine.cause.join(theirs.cause);
      } else {
        mine.cause = theirs.cause;
        mine.heard = true;
      }
    }
  }

 private:
  static constexpr std::size_t groupSize = 8;

  struct Cause {
    int phases[groupSize]{};
    std::uint64_t pieces[groupSize]{};  // of the phase behind them

    constexpr void join(Cause const& other) {
      for (std::size_t i = 0; i < groupSize; ++i) {
        if (other.phases[i] > phases[i]) {
          phases[i] = other.phases[i];
          pieces[i] = other.pieces[i];
        } else if (other.pieces[i] != 0 && other.phases[i] == phases[i]) {
          pieces[i] |= other.pieces[i];
        }
      }
    }
  };
  struct Group {
    bool heard = false;  // of any of them
    int data[groupSize]{}, order[groupSize]{};
    Cause cause{};
  };

  static constexpr std::size_t lane(int actor) { return static_cast<std::size_t>(actor) % groupSize; }
  constexpr Group& of(int actor) { return groups_[static_cast<std::size_t>(actor) / groupSize]; }
  constexpr Group const& of(int actor) const { return groups_[static_cast<std::size_t>(actor) / groupSize]; }

  std::vector<Group> groups_;
};

}  // namespace mscclpp::dsl::detail
