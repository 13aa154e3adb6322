// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How large a program is for the verifier, and how large it may be. Time and memory of the proof grow with the parts of
// chunks that a program has and moves and with the values of its semaphores, for which a small file can ask by the
// million, and with the square of those who act. The largest that are allowed take some ten seconds.
#pragma once

#include <cstdint>
#include <numeric>
#include <string_view>

#include "mscclpp/dsl/core/program.hpp"
#include "mscclpp/dsl/core/text.hpp"

namespace mscclpp::dsl {

inline constexpr std::uint64_t mostParts = std::uint64_t{1} << 22;       // in the buffers of all ranks
inline constexpr std::uint64_t mostPartsNamed = std::uint64_t{1} << 24;  // as sources and targets of one call's steps
inline constexpr std::uint64_t mostTokens = std::uint64_t{1} << 16;      // with which semaphores begin
inline constexpr std::uint64_t mostActors = 6144;                        // blocks and port channels of all ranks

namespace detail {

inline constexpr int turnsOfLoops = 3;  // that the verifier takes

// What chunks are cut into: a part for each block of the groups that share a step, in each turn of a loop.
struct Cut {
  std::uint64_t groups = 1;  // more than mostParts: not counted to the end
  bool loops = false;

  constexpr std::uint64_t parts() const { return groups * (loops ? turnsOfLoops : 1); }
};

constexpr Cut cutOf(Program const& program) {
  Cut cut;
  for (auto const& rank : program.ranks) {
    for (auto const& block : rank.blocks) {
      for (auto const& step : block.steps) {
        // Not std::lcm, which nvcc 13.0 does not evaluate with the library of g++ 12.
        auto const parts = static_cast<std::uint64_t>(step.parts);
        if (cut.groups <= mostParts) cut.groups = cut.groups / std::gcd(cut.groups, parts) * parts;
        cut.loops |= step.kind == StepKind::loopBegin;
      }
    }
  }
  return cut;
}

// f(channel, block, packets): each block of the rank that asks something of a port channel, once for each; `packets`:
// also to move packets.
template <class F>
constexpr void forEachPortUse(RankProgram const& rank, F&& f) {
  enum Use : char { unused, asks, movesPackets };
  for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
    std::vector<char> uses(rank.channels.size(), unused);
    for (auto const& step : rank.blocks[b].steps) {
      if (step.link != ChannelKind::port || step.kind == StepKind::wait) continue;
      bool const packets = step.kind == StepKind::move && step.sources[0].packets;
      for (int const id : step.objects) {
        auto& use = uses[static_cast<std::size_t>(id)];
        use = packets || use == movesPackets ? movesPackets : asks;
      }
    }
    for (std::size_t c = 0; c < uses.size(); ++c) {
      if (uses[c] != unused) f(static_cast<int>(c), static_cast<int>(b), uses[c] == movesPackets);
    }
  }
}

// Why a program whose numbers are in their ranges is too large; empty: it is not.
constexpr Text tooLarge(Program const& program) {
  auto const parts = cutOf(program).parts();
  std::uint64_t chunks = 0, named = 0, tokens = 0, actors = 0;
  for (int rank = 0; rank < program.size(); ++rank) {
    auto const& mine = program.ranks[static_cast<std::size_t>(rank)];
    for (auto const buffer : {BufferKind::input, BufferKind::output, BufferKind::scratch}) {
      auto const halves = buffer == BufferKind::scratch && program.doubleScratch ? 2u : 1u;
      chunks += halves * static_cast<std::uint64_t>(program.chunks(rank, buffer));
    }
    for (int const value : mine.semaphores) tokens += value > 0 ? static_cast<std::uint64_t>(value) : 0;
    forEachPortUse(mine, [&](int, int, bool packets) { actors += packets ? 4 : 1; });
    actors += mine.blocks.size();
    for (auto const& block : mine.blocks) {
      for (auto const& step : block.steps) {
        for (auto const* operands : {&step.sources, &step.targets}) {
          for (auto const& each : *operands)
            named += parts / static_cast<unsigned>(step.parts) * static_cast<unsigned>(each.count);
        }
      }
    }
  }
  auto const tooMany = [&](std::string_view whose, std::uint64_t count, std::uint64_t most) {
    return say(whose, " ", count, " parts of chunks, ", parts, " of each; at most ", most, " can be judged");
  };
  if (chunks * parts > mostParts) return tooMany("the buffers of all ranks have", chunks * parts, mostParts);
  if (named > mostPartsNamed) return tooMany("the steps of all ranks name", named, mostPartsNamed);
  if (tokens > mostTokens) {
    return say("the semaphores of all ranks begin at ", tokens, " together; at most ", mostTokens, " can be judged");
  }
  if (actors > mostActors) {
    return say("all ranks have ", actors, " blocks and port channels together; at most ", mostActors, " can be judged");
  }
  return {};
}

}  // namespace detail

}  // namespace mscclpp::dsl
