// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Puts a sync between two steps of a block where the later one needs the earlier one's effect for all threads: moves
// that touch the same memory, a move behind a wait or acquire, a signal or release behind a move.
#pragma once

#include <utility>
#include <vector>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

namespace detail {

// What a block has done since it last met.
class PhaseSoFar {
 public:
  constexpr explicit PhaseSoFar(Program const& program) : program_(program) {
    int total = 0;
    for (int rank = 0; rank < program.size(); ++rank) {
      for (auto const buffer : {BufferKind::input, BufferKind::output, BufferKind::scratch}) {
        first_.push_back(total);
        total += program.chunks(rank, buffer);
      }
    }
    marks_.resize(static_cast<std::size_t>(total), 0);
  }

  constexpr void begin() {
    phase_ += 2;
    moved_ = waited_ = false;
  }

  constexpr bool needsSyncBefore(Step const& step) const {
    switch (step.kind) {
      case StepKind::move:
        // A port that moves packets has the block meet itself once they are there.
        if (step.link == ChannelKind::port) return moved_ && !step.sources[0].packets;
        if (waited_) return true;
        for (auto const& source : step.sources) {
          if (meets(source, false)) return true;
        }
        for (auto const& target : step.targets) {
          if (meets(target, true)) return true;
        }
        return false;
      case StepKind::signal:
      case StepKind::release:
        return moved_;
      default:
        return false;
    }
  }

  constexpr void add(Step const& step) {
    switch (step.kind) {
      case StepKind::move:
        if (step.link == ChannelKind::port) {
          if (step.sources[0].packets) begin();
          break;
        }
        moved_ = true;
        for (auto const& source : step.sources) touch(source, phase_);
        for (auto const& target : step.targets) touch(target, phase_ + 1);
        break;
      case StepKind::wait:
      case StepKind::acquire:
      case StepKind::flush:
        waited_ = true;
        break;
      case StepKind::sync:
      case StepKind::barrier:
        begin();
        break;
      default:
        break;
    }
  }

 private:
  // The phase in which each chunk was last touched, plus one where it was written.
  constexpr int firstMark(Chunks const& place) const {
    return first_[static_cast<std::size_t>(place.rank * 3 + static_cast<int>(place.buffer))] + place.index;
  }
  constexpr bool meets(Chunks const& operand, bool writes) const {
    auto const place = program_.canonical(operand);
    int const* const marks = marks_.data() + firstMark(place);
    for (int i = 0; i < place.count; ++i) {
      if (marks[i] >= phase_ + (writes ? 0 : 1)) return true;
    }
    return false;
  }
  constexpr void touch(Chunks const& operand, int mark) {
    auto const place = program_.canonical(operand);
    int* const marks = marks_.data() + firstMark(place);
    for (int i = 0; i < place.count; ++i) marks[i] = marks[i] < mark ? mark : marks[i];
  }

  Program const& program_;
  std::vector<int> first_;  // by rank and buffer
  std::vector<int> marks_;
  int phase_ = 0;
  bool moved_ = false, waited_ = false;
};

}  // namespace detail

// In place, block by block. Also at the begin of a loop's turns where they move data and wait or signal, since a turn
// follows a turn.
constexpr void addSyncs(Program& program) {
  detail::PhaseSoFar phase(program);
  for (auto& rank : program.ranks) {
    for (auto& block : rank.blocks) {
      phase.begin();
      std::vector<Step> steps;
      steps.reserve(2 * block.steps.size());
      auto const push = [&](Step& step) {
        if (phase.needsSyncBefore(step)) {
          steps.push_back({.kind = StepKind::sync, .written = false, .number = step.number});
          phase.add(steps.back());
        }
        phase.add(step);
        steps.push_back(std::move(step));
      };
      for (std::size_t s = 0; s < block.steps.size(); ++s) {
        auto const pushed = block.steps[s].kind;
        push(block.steps[s]);
        if (pushed != StepKind::loopBegin) continue;
        // A turn follows a turn: behind waits at the end of one, the moves at the begin of the next must not start
        // early.
        bool waits = false, moves = false, signals = false;
        for (std::size_t t = s + 1; t < block.steps.size() && block.steps[t].kind != StepKind::loopEnd; ++t) {
          auto const kind = block.steps[t].kind;
          waits |= kind == StepKind::wait || kind == StepKind::acquire;
          signals |= kind == StepKind::signal || kind == StepKind::release;
          moves |= kind == StepKind::move;
        }
        if ((waits || signals) && moves) {
          steps.push_back({.kind = StepKind::sync, .written = false, .number = steps.back().number});
          phase.add(steps.back());
        }
      }
      block.steps = std::move(steps);
    }
  }
}

}  // namespace mscclpp::dsl
