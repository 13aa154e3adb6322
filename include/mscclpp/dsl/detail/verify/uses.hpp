// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who of a rank signals, waits, acquires, releases and meets, and how often.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "mscclpp/dsl/core/describe.hpp"

namespace mscclpp::dsl::detail {

// How often a block does something: outside of its loop, and in each turn of it.
struct Uses {
  int block = -1;
  int once = 0, perTurn = 0;
  bool otherBlock = false;
  int secondBlock = -1;

  constexpr void add(int by, bool inLoop) {
    if (block >= 0 && block != by) {
      otherBlock = true;
      secondBlock = by;
    }
    if (block < 0) block = by;
    ++(inLoop ? perTurn : once);
  }
  constexpr bool sameNumber(Uses const& other) const { return once == other.once && perTurn == other.perTurn; }
};

constexpr Text counted(Uses const& uses) {
  if (uses.perTurn == 0) return say(uses.once, uses.once == 1 ? " time" : " times");
  return say(uses.once, " times and ", uses.perTurn, " times in each turn of its loop");
}

// Who signals, waits, acquires, releases, meets: how often, and from how many blocks.
struct RankUses {
  std::vector<Uses> signals, waits, releases, acquires;
  struct BarrierUse {
    int blocks = 0;
    std::vector<Uses> by = {};
  };
  std::vector<BarrierUse> barriers;
};

// `problem` receives what is wrong with it at once.
constexpr RankUses usesOf(Program const& program, int rank, Text& problem) {
  auto const& mine = program.ranks[static_cast<std::size_t>(rank)];
  RankUses uses;
  uses.signals.resize(mine.channels.size());
  uses.waits.resize(mine.channels.size());
  uses.releases.resize(mine.semaphores.size());
  uses.acquires.resize(mine.semaphores.size());
  for (int b = 0; b < static_cast<int>(mine.blocks.size()); ++b) {
    bool inLoop = false;
    for (auto const& step : mine.blocks[static_cast<std::size_t>(b)].steps) {
      if (step.kind == StepKind::loopBegin) inLoop = true;
      if (step.kind == StepKind::loopEnd) inLoop = false;
      auto* const list = step.kind == StepKind::signal    ? &uses.signals
                         : step.kind == StepKind::wait    ? &uses.waits
                         : step.kind == StepKind::release ? &uses.releases
                         : step.kind == StepKind::acquire ? &uses.acquires
                                                          : nullptr;
      if (list != nullptr) {
        for (int const id : step.objects) (*list)[static_cast<std::size_t>(id)].add(b, inLoop);
      }
      if (step.kind != StepKind::barrier) continue;
      auto const id = static_cast<std::size_t>(step.objects[0]);
      if (uses.barriers.size() <= id) uses.barriers.resize(id + 1);
      auto& use = uses.barriers[id];
      if (use.blocks != 0 && use.blocks != step.blocks) {
        problem = say("rank ", rank, " barrier ", id, " is of ", use.blocks, " blocks in one step and of ", step.blocks,
                      " in another");
      }
      use.blocks = step.blocks;
      bool known = false;
      for (auto& by : use.by) {
        if (by.block != b) continue;
        by.add(b, inLoop);
        known = true;
      }
      if (!known) {
        use.by.emplace_back();
        use.by.back().add(b, inLoop);
      }
    }
  }
  return uses;
}

}  // namespace mscclpp::dsl::detail
