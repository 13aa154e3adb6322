// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program's steps in the form that kernels carry out: one slice per rank and block, operands under their one name,
// numbers of ranks and chunks as rules wherever all ranks do the same.
#pragma once

#include <utility>
#include <vector>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/dsl/detail/verify/verify.hpp"
#include "mscclpp/layout/plan_handle.hpp"

namespace mscclpp::dsl {

using layout::RankNumber;

// Steps of one block of each `period`. `rank` -1: of every rank, numbers being rules.
struct Slice {
  int rank = -1;
  int block = 0;
  int period = 1;
  std::vector<layout::PlanStep> steps = {};
  std::vector<layout::PlanOperand> operands = {};
  std::vector<RankNumber> objects = {};

  // All that may differ from rank to rank.
  constexpr std::size_t numbers() const { return 2 * operands.size() + objects.size(); }
  constexpr RankNumber& number(std::size_t i) {
    if (i >= 2 * operands.size()) return objects[i - 2 * operands.size()];
    return i % 2 == 0 ? operands[i / 2].rank : operands[i / 2].index;
  }
  constexpr RankNumber const& number(std::size_t i) const {
    if (i >= 2 * operands.size()) return objects[i - 2 * operands.size()];
    return i % 2 == 0 ? operands[i / 2].rank : operands[i / 2].index;
  }
};

// Kernels count units of 16 bytes in 32 bits: those of a message, with room for a number of chunks to be added, and
// those of a rank's scratch.
inline constexpr std::uint64_t largestMessage = (std::uint64_t{1} << 36) - (1 << 20);
inline constexpr std::uint64_t largestScratch = (std::uint64_t{1} << 36) - 16;
// And the bytes of a chunk that travels as packets.
inline constexpr std::uint64_t largestPacketChunk = (std::uint64_t{1} << 32) - 16;

// Bytes of the longest chunk of a message.
MSCCLPP_HOST_DEVICE constexpr std::uint64_t longestChunk(std::uint64_t bytes, int chunks) {
  return ceilDiv<std::uint64_t>(ceilDiv<std::uint64_t>(bytes, 16), static_cast<unsigned>(chunks)) * 16;
}

// Blocks of the largest rank's grid.
constexpr std::size_t blocksOf(Program const& program) {
  std::size_t blocks = 0;
  for (auto const& rank : program.ranks) blocks = rank.blocks.size() > blocks ? rank.blocks.size() : blocks;
  return blocks;
}

// Whether a step takes packets from scratch to scratch, of whatever chunk of the message they are.
constexpr bool relaysPackets(Program const& program) {
  if (program.protocol != Protocol::lowLatency) return false;
  for (auto const& rank : program.ranks) {
    for (auto const& block : rank.blocks) {
      for (auto const& step : block.steps) {
        if (step.kind != StepKind::move) continue;
        bool packets = false, scratch = true;
        for (auto const& chunks : step.sources) {
          packets = packets || chunks.packets;
          scratch = scratch && chunks.buffer == BufferKind::scratch;
        }
        for (auto const& chunks : step.targets) scratch = scratch && chunks.buffer == BufferKind::scratch;
        if (packets && scratch) return true;
      }
    }
  }
  return false;
}

// A buffer without chunks, which no step names, has one here: kernels divide by their number.
constexpr layout::PlanShape shapeOf(Program const& program, bool needsEvenChunks) {
  auto const& c = program.collective;
  int const in = c.inputPerSlice(), out = c.outputPerSlice();
  int const longestOf = in < 1 ? (out < 1 ? 1 : out) : (out < 1 || in < out) ? in : out;
  return {.ranks = program.size(),
          .blocks = static_cast<std::uint32_t>(blocksOf(program)),
          .inputSlices = c.inputSlices(),
          .inputPerSlice = in < 1 ? 1 : in,
          .outputSlices = c.outputSlices(),
          .outputPerSlice = out < 1 ? 1 : out,
          .longestOf = longestOf,
          .doubleScratch = program.doubleScratch,
          .needsEvenChunks = needsEvenChunks,
          .relaysPackets = relaysPackets(program)};
}

namespace detail {

constexpr RankNumber fixedNumber(int value) { return {RankNumber::Rule::fixed, 0, 0, 0, value}; }

// The rule that gives values[r] at rank r; `found` false where there is none.
constexpr RankNumber ruleFor(std::vector<int> const& values, bool& found) {
  int const ranks = static_cast<int>(values.size());
  auto const fits = [&](RankNumber const& rule) {
    for (int r = 0; r < ranks; ++r) {
      if (rule.at(r, ranks) != values[static_cast<std::size_t>(r)]) return false;
    }
    return true;
  };
  found = true;
  if (auto const rule = fixedNumber(values[0]); fits(rule)) return rule;
  int least = values[0], most = values[0];
  for (int const value : values) {
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
  for (int offset = 0; ranks > 1 && offset < ranks; ++offset) {
    int const unit = (most - least) / (ranks - 1);
    RankNumber const rotate{RankNumber::Rule::rotate, static_cast<std::int16_t>(unit),
                            static_cast<std::int16_t>(offset), 0, least};
    if (fits(rotate)) return rotate;
    // The offset-th of the others takes two neighbouring values only.
    RankNumber const others{RankNumber::Rule::others, static_cast<std::int16_t>(most - least),
                            static_cast<std::int16_t>(offset), 0, least - (most - least) * offset};
    if (fits(others)) return others;
  }
  found = false;
  return fixedNumber(values[0]);
}

// Whether these are the same chunks, of every rank's memory once: what the switch reads and writes at once.
constexpr bool areEverybodys(Program const& program, std::vector<Chunks> const& operands) {
  if (static_cast<int>(operands.size()) != program.size()) return false;
  // Not of bool, which clang does not evaluate in the form that g++ 12 has it.
  std::vector<char> seen(operands.size(), 0);
  auto const first = program.canonical(operands[0]);
  for (auto const& chunks : operands) {
    auto const place = program.canonical(chunks);
    auto const rank = static_cast<std::size_t>(place.rank);
    if (place.packets || seen[rank] != 0 || place.buffer != first.buffer || place.index != first.index) return false;
    seen[rank] = 1;
  }
  return true;
}

class Lowering {
 public:
  constexpr explicit Lowering(Program const& program) : program_(program) {}

  constexpr Slice ofRank(int rank, int block) {
    Slice slice;
    slice.rank = rank;
    slice.block = block;
    int ahead = 0, chunksAhead = 0;
    auto const& mine = program_.ranks[static_cast<std::size_t>(rank)];
    if (block >= static_cast<int>(mine.blocks.size())) return slice;
    auto const& steps = mine.blocks[static_cast<std::size_t>(block)].steps;
    int loop = 0;
    slice.steps.reserve(steps.size());
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      auto const& step = steps[static_cast<std::size_t>(s)];
      layout::PlanStep made{};
      made.kind = static_cast<std::uint8_t>(step.kind);
      made.link = static_cast<std::uint8_t>(step.link);
      made.reduce = static_cast<std::uint8_t>(step.reduce);
      made.concludes = step.concludes;
      made.part = step.part;
      made.parts = step.parts;
      made.blocks = step.blocks;
      made.loopChunks = step.loopChunks;
      made.unitBytes = step.unitBytes;
      made.firstOperand = static_cast<std::int32_t>(slice.operands.size());
      made.sources = static_cast<std::int32_t>(step.sources.size());
      made.targets = static_cast<std::int32_t>(step.targets.size());
      made.firstObject = static_cast<std::int32_t>(slice.objects.size());
      bool const named = step.kind != StepKind::move || step.link == ChannelKind::port;
      made.objects = named ? static_cast<std::int32_t>(step.objects.size()) : 0;
      if (step.kind == StepKind::move) {
        made.chunks = step.sources[0].count;
        if (step.link == ChannelKind::switched) {
          made.everybody = static_cast<std::uint8_t>((areEverybodys(program_, step.sources) ? 1 : 0) +
                                                     (areEverybodys(program_, step.targets) ? 2 : 0));
        }
        made.ahead = static_cast<std::uint8_t>(ahead++ % 256);
        made.chunksAhead = static_cast<std::uint8_t>(chunksAhead % 256);
        chunksAhead += made.chunks;
        for (auto const* operands : {&step.sources, &step.targets}) {
          for (auto const& chunks : *operands) {
            auto const place = program_.canonical(chunks);
            slice.operands.push_back({fixedNumber(place.rank), fixedNumber(place.index),
                                      static_cast<std::uint8_t>(place.buffer), chunks.packets});
          }
        }
      }
      for (int i = 0; i < made.objects; ++i) {
        slice.objects.push_back(fixedNumber(step.objects[static_cast<std::size_t>(i)]));
      }
      if (step.kind == StepKind::sync || step.kind == StepKind::barrier) ahead = chunksAhead = 0;
      if (step.kind == StepKind::loopBegin) loop = s;
      if (step.kind == StepKind::loopEnd) slice.steps[static_cast<std::size_t>(loop)].loopEnd = s;
      slice.steps.push_back(made);
    }
    return slice;
  }

  // One slice for all ranks where they do the same in this block, else one for each.
  constexpr std::vector<Slice> ofBlock(int block) {
    std::vector<Slice> slices;
    for (int rank = 0; rank < program_.size(); ++rank) slices.push_back(ofRank(rank, block));
    auto merged = slices[0];
    merged.rank = -1;
    for (auto const& other : slices) {
      if (!sameShape(merged, other)) return slices;
    }
    bool found = true;
    std::vector<int> values(slices.size(), 0);
    for (std::size_t i = 0; found && i < merged.numbers(); ++i) {
      for (std::size_t r = 0; r < slices.size(); ++r) values[r] = slices[r].number(i).base;
      merged.number(i) = ruleFor(values, found);
    }
    if (!found) return slices;
    slices.clear();
    slices.push_back(std::move(merged));
    return slices;
  }

  // Whether all blocks do what the first `period` do, with numbers that grow by the same from one instance to the next;
  // if so, writes into those by how much.
  constexpr bool repeats(std::vector<std::vector<Slice>>& byBlock, int period) const {
    auto const blocks = byBlock.size(), each = static_cast<std::size_t>(period);
    for (std::size_t b = each; b < blocks; ++b) {
      auto const &first = byBlock[b % each], &here = byBlock[b];
      if (here.size() != first.size()) return false;
      for (std::size_t s = 0; s < here.size(); ++s) {
        if (here[s].rank != first[s].rank || !sameShape(first[s], here[s])) return false;
        auto const instance = static_cast<int>(b / each);
        auto const& second = byBlock[b % each + each][s];
        bool follows = true;
        for (std::size_t i = 0; follows && i < here[s].numbers(); ++i) {
          follows = isInstance(first[s].number(i), second.number(i), here[s].number(i), instance);
        }
        if (!follows) return false;
      }
    }
    for (std::size_t b = 0; blocks > each && b < each; ++b) {
      for (std::size_t s = 0; s < byBlock[b].size(); ++s) {
        auto const& second = byBlock[b + each][s];
        for (std::size_t i = 0; i < second.numbers(); ++i) {
          auto& number = byBlock[b][s].number(i);
          number.perInstance = static_cast<std::int16_t>(second.number(i).base - number.base);
        }
      }
    }
    return true;
  }

 private:
  static constexpr bool isInstance(RankNumber const& first, RankNumber const& second, RankNumber const& number,
                                   int instance) {
    int const step = second.base - first.base;
    return number.rule == first.rule && number.unit == first.unit && number.offset == first.offset &&
           step == static_cast<std::int16_t>(step) && number.base == first.base + step * instance;
  }
  static constexpr bool sameShape(Slice const& a, Slice const& b) {
    if (a.steps.size() != b.steps.size() || a.operands.size() != b.operands.size() ||
        a.objects.size() != b.objects.size()) {
      return false;
    }
    for (std::size_t s = 0; s < a.steps.size(); ++s) {
      auto const &x = a.steps[s], &y = b.steps[s];
      if (x.kind != y.kind || x.link != y.link || x.everybody != y.everybody || x.reduce != y.reduce ||
          x.concludes != y.concludes || x.chunks != y.chunks || x.part != y.part || x.parts != y.parts ||
          x.sources != y.sources || x.targets != y.targets || x.objects != y.objects || x.blocks != y.blocks ||
          x.loopChunks != y.loopChunks || x.unitBytes != y.unitBytes) {
        return false;
      }
    }
    for (std::size_t i = 0; i < a.operands.size(); ++i) {
      if (a.operands[i].buffer != b.operands[i].buffer || a.operands[i].packets != b.operands[i].packets) return false;
    }
    return true;
  }

  Program const& program_;
};

}  // namespace detail

// The slices of a right program whose conclusions are marked; blocks in order. Instances share theirs.
constexpr std::vector<Slice> lower(Program const& program) {
  detail::Lowering lowering(program);
  std::vector<std::vector<Slice>> byBlock;
  int const blocks = static_cast<int>(blocksOf(program));
  for (int block = 0; block < blocks; ++block) byBlock.push_back(lowering.ofBlock(block));
  int period = blocks > 0 ? 1 : 0;
  while (period < blocks && !(blocks % period == 0 && lowering.repeats(byBlock, period))) ++period;
  std::vector<Slice> slices;
  for (int block = 0; block < period; ++block) {
    for (auto& slice : byBlock[static_cast<std::size_t>(block)]) {
      slice.period = period;
      slices.push_back(std::move(slice));
    }
  }
  return slices;
}

}  // namespace mscclpp::dsl
