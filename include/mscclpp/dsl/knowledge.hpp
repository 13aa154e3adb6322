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
// An actor's steps between two syncs make a phase. Clocks count completed phases; `cause` also knows single steps of
// the phase under way, because a step that reads packets and sends others does so slot by slot.
#pragma once

#include <cstdint>
#include <vector>

namespace mscclpp::dsl::detail {

// Where a step stands: what somebody must know of to be behind it.
struct Stamp {
  int actor = -1;  // -1: no step
  int phase = 0;
  int inPhase = 0;  // which of the phase's moving steps
  int piece = 0;    // which of the step's chunks
  int call = 0;
  int rank = 0, block = 0, step = 0;  // in the program; block -1: the caller of the rank

  constexpr bool exists() const { return actor >= 0; }
  constexpr bool byCaller() const { return block < 0; }
  constexpr bool samePiece(Stamp const& other) const {
    return actor == other.actor && phase == other.phase && inPhase == other.inPhase && piece == other.piece;
  }
};

class Knowledge {
 public:
  struct Mark {
    int phases = 0;
    std::uint64_t steps = 0;  // of the phase behind them
  };

  constexpr Knowledge() = default;
  constexpr explicit Knowledge(int actors)
      : data_(static_cast<std::size_t>(actors), 0),
        order_(static_cast<std::size_t>(actors), 0),
        cause_(static_cast<std::size_t>(actors), Mark{}) {}

  constexpr bool knowsData(Stamp const& stamp) const {
    return (stamp.byCaller() ? order_ : data_)[at(stamp.actor)] > stamp.phase;
  }
  constexpr bool knowsOrder(Stamp const& stamp) const { return order_[at(stamp.actor)] > stamp.phase; }
  constexpr bool knowsCause(Stamp const& stamp) const {
    auto const& mark = cause_[at(stamp.actor)];
    return mark.phases > stamp.phase ||
           (mark.phases == stamp.phase && stamp.inPhase < 64 && (mark.steps >> stamp.inPhase & 1) != 0);
  }

  constexpr void completePhases(int actor, int phases) {
    data_[at(actor)] = phases;
    order_[at(actor)] = phases;
    cause_[at(actor)] = {phases, 0};
  }
  constexpr void completeStep(int actor, int phase, int inPhase) {
    auto& mark = cause_[at(actor)];
    if (mark.phases == phase && inPhase < 64) mark.steps |= std::uint64_t{1} << inPhase;
  }

  constexpr void join(Knowledge const& other, bool withData = true) {
    int const* const theirData = other.data_.data();
    int const* const theirOrder = other.order_.data();
    int* const data = data_.data();
    int* const order = order_.data();
    for (std::size_t i = 0, actors = data_.size(); i < actors; ++i) {
      if (withData && theirData[i] > data[i]) data[i] = theirData[i];
      if (theirOrder[i] > order[i]) order[i] = theirOrder[i];
    }
    joinCause(other);
  }
  constexpr void joinCause(Knowledge const& other) {
    Mark const* const theirs = other.cause_.data();
    Mark* const mine = cause_.data();
    for (std::size_t i = 0, actors = cause_.size(); i < actors; ++i) {
      if (theirs[i].phases > mine[i].phases) {
        mine[i] = theirs[i];
      } else if (theirs[i].phases == mine[i].phases) {
        mine[i].steps |= theirs[i].steps;
      }
    }
  }

 private:
  static constexpr std::size_t at(int actor) { return static_cast<std::size_t>(actor); }

  std::vector<int> data_, order_;
  std::vector<Mark> cause_;
};

}  // namespace mscclpp::dsl::detail
