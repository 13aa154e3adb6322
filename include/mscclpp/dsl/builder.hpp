// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a program, step by step: what `static constexpr void define(dsl::Builder& p)` is given.
//
//   auto channel = p.memoryChannel(/*to=*/1, /*of=*/0);                     // rank 0's; meets memoryChannel(0, 1)
//   channel.put(p.rank(1).output()[0], p.rank(0).input()[0], {.tb = 0});    // a step of rank 0, block 0
//   channel.signal({.tb = 0, .dataSync = dsl::before});
//
// The n-th channel from a to b meets the n-th from b to a: each signal of one ends one wait of the other. The first
// mistake in using the builder is kept as a sentence, with which the program is then refused.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "mscclpp/dsl/core/describe.hpp"
#include "mscclpp/dsl/core/spec.hpp"

namespace mscclpp::dsl {

// A rank's buffer, or a part of its scratch: buffer[i] is a chunk, buffer(first, count) are several.
struct BufferRef {
  int rank = 0;
  BufferKind kind = BufferKind::input;
  int first = 0, count = 0;

  constexpr Chunks operator[](int index) const { return (*this)(index, 1); }
  // Out of this buffer's chunks there are none: a negative count is refused by the step that uses it.
  constexpr Chunks operator()(int index, int chunks) const {
    bool const inside = index >= 0 && chunks >= 1 && index + chunks <= count;
    return {rank, kind, first + index, inside ? chunks : -1, false};
  }
};

class RankRef;
class SemaphoreRef;
class MemoryChannelRef;
class PortChannelRef;
class SwitchChannelRef;

class Builder {
 public:
  constexpr explicit Builder(Spec const& spec) : spec_(spec) {
    program_.name.add(spec.name);
    program_.collective = spec.collective;
    program_.inPlace = spec.inPlace;
    program_.protocol = spec.protocol;
    program_.doubleScratch = spec.doubleScratch;
    program_.reuseResources = spec.reuseResources;
    program_.strict = spec.strict;
    program_.threads = spec.threads;
    program_.alignment = spec.alignment;
    program_.minBytes = spec.minBytes;
    program_.maxBytes = spec.maxBytes;
    program_.ranks.resize(static_cast<std::size_t>(spec.collective.ranks < 1 ? 1 : spec.collective.ranks));
    inLoop_.resize(program_.ranks.size());
    barriers_.resize(program_.ranks.size());
    if (spec.collective.ranks < 1) refuse(say("a collective of ", spec.collective.ranks, " ranks; at least 1"));
  }

  constexpr int ranks() const { return program_.size(); }
  constexpr RankRef rank(int rank);
  // A new channel each time, of rank `of` to another rank `to`; that of portChannel() goes through a proxy.
  constexpr MemoryChannelRef memoryChannel(int to, int of);
  constexpr PortChannelRef portChannel(int to, int of);
  // One channel of all `ranks`, over their buffers of this kind.
  constexpr SwitchChannelRef switchChannel(std::vector<int> ranks, BufferKind buffer);
  // Between blocks of one rank: each release ends one acquire; `initial` of them are there at the start.
  constexpr SemaphoreRef semaphore(int rank, int initial = 0);

  // The steps that `body` makes are repeated until all chunks are through, `unitBytes` of `chunks` chunks each time.
  template <class Body>
  constexpr void loop(std::uint64_t unitBytes, int chunks, Body&& body) {
    if (!beginLoop(unitBytes, chunks)) return;
    body();
    endLoop();
  }
  // The same with the steps between the two; false where there is no loop to end.
  constexpr bool beginLoop(std::uint64_t unitBytes, int chunks);
  constexpr void endLoop();

  // A custom collective's demand: the chunk of output ends as the reduction of these chunks of input.
  constexpr void expect(Chunks const& output, std::initializer_list<Chunks> inputs) {
    Expectation wanted{output.rank, output.index, {}};
    for (auto const& input : inputs) wanted.holds.push_back({input.rank, input.index});
    program_.expectations.push_back(std::move(wanted));
  }

  // What has been written so far, and the spec() that it began with.
  constexpr Program& program() { return program_; }
  constexpr Spec const& spec() const { return spec_; }

  // For steps that have no function of their own: adds `step` to each block that `at` names.
  constexpr void add(int rank, At const& at, Step step);
  constexpr void refuse(Text const& sentence) {
    if (program_.mistake.empty()) program_.mistake = sentence;
  }

 private:
  friend class RankRef;
  friend class SemaphoreRef;
  friend class ChannelRef;

  constexpr bool knows(int rank, std::string_view what) {
    if (rank >= 0 && rank < ranks()) return true;
    refuse(say(what, " of rank ", rank, ": the collective has ranks 0 to ", ranks() - 1));
    return false;
  }
  // A rank that exists, so that building can go on behind a mistake.
  constexpr int known(int rank, std::string_view what) { return knows(rank, what) ? rank : 0; }
  constexpr void addTo(int rank, int block, Step step);
  constexpr int newChannel(int of, Channel channel) {
    auto& channels = of_(of).channels;
    channels.push_back(std::move(channel));
    return static_cast<int>(channels.size()) - 1;
  }
  constexpr RankProgram& of_(int rank) { return program_.ranks[static_cast<std::size_t>(rank)]; }
  // The same blocks meet at the same barrier each time.
  constexpr int barrierOf(int rank, std::vector<int> const& blocks) {
    auto& known = barriers_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i] == blocks) return static_cast<int>(i);
    }
    known.push_back(blocks);
    return static_cast<int>(known.size()) - 1;
  }

  Spec spec_;
  Program program_;
  int sequence_ = 0;
  bool loops_ = false;
  Step loopBegin_ = {};
  std::vector<std::vector<char>> inLoop_;                // by rank and block: the open loop has begun there
  std::vector<std::vector<std::vector<int>>> barriers_;  // by rank: the blocks of each
};

constexpr void Builder::addTo(int rank, int block, Step step) {
  auto& blocks = of_(rank).blocks;
  auto& inLoop = inLoop_[static_cast<std::size_t>(rank)];
  if (block < 0) {
    refuse(say("rank ", rank, " block ", block, " (", nameOf(step, rank), "): blocks count from 0"));
    return;
  }
  auto const at = static_cast<std::size_t>(block);
  if (at >= blocks.size()) {
    blocks.resize(at + 1);
    inLoop.resize(at + 1, 0);
  }
  auto& steps = blocks[at].steps;
  if (loops_ && !inLoop[at]) {
    inLoop[at] = 1;
    auto begin = loopBegin_;
    begin.number = steps.empty() ? 0 : steps.back().number + 1;
    steps.push_back(std::move(begin));
  }
  step.number = steps.empty() ? 0 : steps.back().number + (step.written ? 1 : 0);
  steps.push_back(std::move(step));
}

constexpr void Builder::add(int rank, At const& at, Step step) {
  auto const wanted = at.dataSync != DataSync::automatic                                             ? at.dataSync
                      : spec_.autoSync || step.kind == StepKind::move || step.kind == StepKind::sync ? none
                                                                                                     : both;
  for (auto const* operands : {&step.sources, &step.targets}) {
    for (auto const& chunks : *operands) {
      if (chunks.count >= 1 && knows(chunks.rank, "chunks") && chunks.index >= 0 &&
          chunks.count <= program_.chunks(chunks.rank, chunks.buffer) - chunks.index) {
        continue;
      }
      refuse(say("rank ", rank, " block ", at.tb, " (", nameOf(step, rank), "): ", nameOf(chunks.buffer), "[",
                 chunks.index, "] of rank ", chunks.rank, " is not inside the buffer"));
      return;
    }
  }
  step.dataSync = at.dataSync;
  step.sequence = sequence_++;
  step.grouped = at.group.size() > 0;
  int const parts = at.group.size() > 0 ? at.group.size() : 1;
  for (int part = 0; part < parts; ++part) {
    int const block = at.group.size() > 0 ? at.group.at(part) : at.tb;
    for (int other = 0; other < part; ++other) {
      if (at.group.at(other) == block) refuse(say("a group of blocks names block ", block, " twice"));
    }
    if (wanted == before || wanted == both) addTo(rank, block, {.written = false});
    step.part = part;
    step.parts = parts;
    addTo(rank, block, step);
    if (wanted == after || wanted == both) addTo(rank, block, {.written = false});
  }
}

constexpr bool Builder::beginLoop(std::uint64_t unitBytes, int chunks) {
  if (loops_) {
    refuse(say("a loop inside a loop: loops do not nest"));
    return false;
  }
  if (unitBytes == 0 || unitBytes % 16 != 0 || chunks < 1) {
    refuse(say("a loop of ", unitBytes, " bytes of ", chunks, " chunks: bytes are a multiple of 16, at least 1 chunk"));
    return false;
  }
  loops_ = true;
  loopBegin_ = {.kind = StepKind::loopBegin, .unitBytes = unitBytes, .loopChunks = chunks};
  return true;
}

constexpr void Builder::endLoop() {
  loops_ = false;
  for (std::size_t r = 0; r < inLoop_.size(); ++r) {
    for (std::size_t b = 0; b < inLoop_[r].size(); ++b) {
      if (!inLoop_[r][b]) continue;
      addTo(static_cast<int>(r), static_cast<int>(b), {.kind = StepKind::loopEnd, .written = false});
      inLoop_[r][b] = 0;
    }
  }
}

// ---- what happens within one rank -----------------------------------------------------------------------------------

// The same chunks, to be written as packets or awaited as such.
constexpr Chunks asPackets(Chunks chunks) {
  chunks.packets = true;
  return chunks;
}
constexpr std::vector<Chunks> asPackets(std::vector<Chunks> chunks) {
  for (auto& each : chunks) each.packets = true;
  return chunks;
}

// One rank of a program: its buffers, and the steps of its blocks that need no channel.
class RankRef {
 public:
  constexpr RankRef(Builder& builder, int rank) : builder_(builder), rank_(rank) {}

  constexpr BufferRef input() const { return {rank_, BufferKind::input, 0, chunks(BufferKind::input)}; }
  constexpr BufferRef output() const { return {rank_, BufferKind::output, 0, chunks(BufferKind::output)}; }
  // New chunks of scratch memory each time.
  constexpr BufferRef scratch(int count) const {
    auto& used = builder_.of_(rank_).scratchChunks;
    used += count;
    return {rank_, BufferKind::scratch, used - count, count};
  }

  // Plain data to plain data; copyPackets() writes packets, unpackPackets() awaits them.
  constexpr void copy(Chunks const& dst, Chunks const& src, At const& at = {}) const { move({src}, {dst}, at); }
  constexpr void copyPackets(Chunks const& dst, Chunks const& src, At const& at = {}) const {
    move({src}, {asPackets(dst)}, at);
  }
  constexpr void unpackPackets(Chunks const& dst, Chunks const& src, At const& at = {}) const {
    move({asPackets(src)}, {dst}, at);
  }
  // dst = first + others
  constexpr void reduce(Chunks const& dst, Chunks const& first, std::vector<Chunks> others, At const& at = {}) const {
    others.insert(others.begin(), first);
    move(std::move(others), {dst}, at);
  }
  // The same, of others that arrive as packets.
  constexpr void reducePackets(Chunks const& dst, Chunks const& first, std::vector<Chunks> others,
                               At const& at = {}) const {
    reduce(dst, first, asPackets(std::move(others)), at);
  }
  // These blocks wait for each other.
  constexpr void barrier(std::vector<int> const& blocks) const {
    int const id = builder_.barrierOf(rank_, blocks);
    for (int const block : blocks) {
      builder_.add(rank_, {.tb = block, .dataSync = none},
                   {.kind = StepKind::barrier, .objects = {id}, .blocks = static_cast<int>(blocks.size())});
    }
  }
  constexpr void sync(int block) const {
    builder_.add(rank_, {.tb = block, .dataSync = none}, {.kind = StepKind::sync});
  }
  // Any sources, combined, into each of the targets.
  constexpr void move(std::vector<Chunks> sources, std::vector<Chunks> targets, At const& at = {}) const {
    builder_.add(
        rank_, at,
        {.kind = StepKind::move, .reduce = at.reduce, .sources = std::move(sources), .targets = std::move(targets)});
  }

 private:
  constexpr int chunks(BufferKind kind) const { return builder_.program_.chunks(rank_, kind); }

  Builder& builder_;
  int rank_;
};

// A semaphore between blocks of one rank; acquire() waits for a release() of any of them, and uses it up.
class SemaphoreRef {
 public:
  constexpr SemaphoreRef(Builder& builder, int rank, int id) : builder_(builder), rank_(rank), id_(id) {}
  constexpr void acquire(At const& at) const { step(StepKind::acquire, at); }
  constexpr void release(At const& at) const { step(StepKind::release, at); }

 private:
  constexpr void step(StepKind kind, At const& at) const { builder_.add(rank_, at, {.kind = kind, .objects = {id_}}); }

  Builder& builder_;
  int rank_;
  int id_;
};

constexpr RankRef Builder::rank(int rank) { return {*this, known(rank, "use")}; }
constexpr SemaphoreRef Builder::semaphore(int rank, int initial) {
  rank = known(rank, "semaphore");
  auto& values = of_(rank).semaphores;
  values.push_back(initial);
  return {*this, rank, static_cast<int>(values.size()) - 1};
}

}  // namespace mscclpp::dsl
