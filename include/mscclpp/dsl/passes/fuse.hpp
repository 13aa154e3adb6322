// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Merges neighbouring steps of a block into one that does the work of both:
//
//   signal + signal, wait + wait, release + release, ...   one step, a lane of the first warp for each channel
//   sync + sync                                            one
//   move + move of the same sources                        one pass over the sources, into all the targets
//   a = b + c, a = a + d                                   a = b + c + d
//   a = b + c, sync, put a to d                            the sum goes into a and d while it is in registers
#pragma once

#include <utility>
#include <vector>

#include "mscclpp/base/config.hpp"
#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

namespace detail {

constexpr bool touchesAny(Program const& program, Chunks const& one, std::vector<Chunks> const& others) {
  auto const a = program.canonical(one);
  for (auto const& other : others) {
    auto const b = program.canonical(other);
    if (a.rank == b.rank && a.buffer == b.buffer && a.index < b.index + b.count && b.index < a.index + a.count)
      return true;
  }
  return false;
}

constexpr bool same(Program const& program, Chunks const& a, Chunks const& b) {
  return program.canonical(a) == program.canonical(b);
}

constexpr bool mergesOrder(Step& into, Step const& next) {
  if (into.kind != next.kind || into.link != next.link || into.relaxed != next.relaxed) return false;
  if (into.kind == StepKind::sync) return true;
  if (into.kind != StepKind::signal && into.kind != StepKind::wait && into.kind != StepKind::flush &&
      into.kind != StepKind::acquire && into.kind != StepKind::release) {
    return false;
  }
  for (int const id : next.objects) {
    for (int const other : into.objects) {
      if (id == other) return false;
    }
  }
  into.objects.insert(into.objects.end(), next.objects.begin(), next.objects.end());
  return true;
}

constexpr bool mergesMove(Program const& program, Step& into, Step const& next) {
  if (into.kind != StepKind::move || next.kind != StepKind::move || into.link != ChannelKind::memory ||
      next.link != ChannelKind::memory || into.part != next.part || into.parts != next.parts ||
      into.sources[0].count != next.sources[0].count || into.targets.size() + next.targets.size() > maxTeamSize) {
    return false;
  }
  for (auto const& target : next.targets) {
    if (touchesAny(program, target, into.targets) || touchesAny(program, target, into.sources)) return false;
  }
  // The same sources: into more targets.
  bool sameSources =
      into.sources.size() == next.sources.size() && (into.sources.size() == 1 || into.reduce == next.reduce);
  for (std::size_t i = 0; sameSources && i < into.sources.size(); ++i) {
    sameSources =
        same(program, into.sources[i], next.sources[i]) && !touchesAny(program, into.sources[i], into.targets);
  }
  // What has just been computed, sent on.
  bool sendsOn = next.sources.size() == 1 && !next.sources[0].packets;
  if (sendsOn) {
    bool found = false;
    for (auto const& target : into.targets) found |= !target.packets && same(program, target, next.sources[0]);
    sendsOn = found;
  }
  if (!sameSources && !sendsOn) return false;
  into.targets.insert(into.targets.end(), next.targets.begin(), next.targets.end());
  into.objects.insert(into.objects.end(), next.objects.begin(), next.objects.end());
  return true;
}

// a = b + c, then a = a + d.
constexpr bool mergesReduce(Program const& program, Step& into, Step const& next) {
  if (into.kind != StepKind::move || next.kind != StepKind::move || into.link != ChannelKind::memory ||
      next.link != ChannelKind::memory || into.part != next.part || into.parts != next.parts ||
      next.sources.size() < 2 || (into.sources.size() > 1 && into.reduce != next.reduce) || into.targets.size() != 1 ||
      into.targets[0].packets || into.sources[0].count != next.sources[0].count ||
      !same(program, into.targets[0], next.sources[0]) || !same(program, into.targets[0], next.targets[0]) ||
      into.sources.size() + next.sources.size() > maxTeamSize) {
    return false;
  }
  for (std::size_t i = 1; i < next.sources.size(); ++i) {
    if (touchesAny(program, next.sources[i], into.targets)) return false;
  }
  for (auto const& target : next.targets) {
    if (!same(program, target, into.targets[0]) && touchesAny(program, target, into.sources)) return false;
  }
  into.sources.insert(into.sources.end(), next.sources.begin() + 1, next.sources.end());
  into.targets = next.targets;
  into.reduce = next.reduce;
  into.objects.insert(into.objects.end(), next.objects.begin(), next.objects.end());
  return true;
}

}  // namespace detail

// Before syncs are put in: a sync that the program's author wrote keeps steps apart.
constexpr void fuse(Program& program) {
  for (auto& rank : program.ranks) {
    for (auto& block : rank.blocks) {
      std::vector<Step> steps;
      steps.reserve(block.steps.size());
      for (auto& step : block.steps) {
        if (!steps.empty()) {
          auto& last = steps.back();
          if (detail::mergesOrder(last, step) || detail::mergesReduce(program, last, step) ||
              detail::mergesMove(program, last, step)) {
            continue;
          }
        }
        steps.push_back(std::move(step));
      }
      block.steps = std::move(steps);
    }
  }
}

}  // namespace mscclpp::dsl
