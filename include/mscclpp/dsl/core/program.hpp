// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A collective program: what each block of each rank does, step by step. The one representation that the builder
// makes, passes rewrite, the verifier proves, plans are read into and written from, and kernels are compiled from.
//
// Every step that moves data is one `move`: it combines its sources and stores the result into each of its targets. An
// operand lies on any rank, in plain data or in packets; so put, get, copy, reduce, their packet forms and those of a
// switch differ in their operands only. The other steps order: signal and wait between ranks, release and acquire
// between blocks, barrier among blocks, sync within one.
//
// Steps of a block between two syncs are not ordered with each other where they move data: a block spreads them over
// its warps. Signals, waits, acquires and releases of a block happen in their order, in its first warp.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mscclpp/dsl/core/kinds.hpp"
#include "mscclpp/dsl/core/text.hpp"

namespace mscclpp::dsl {

// What a collective demands, and how its buffers are cut. A buffer consists of slices of the message (one per rank, or
// one), each cut into the same number of chunks.
struct Collective {
  CollectiveKind kind = CollectiveKind::custom;
  int ranks = 1;
  int chunkFactor = 1;
  int customInput = 0, customOutput = 0;  // chunks of a custom collective, or of an all-reduce that is cut otherwise
  int shift = 1;                          // of send-receive: how many ranks ahead data go

  // inputSlices(), outputSlices(): a slice for each rank where the buffer has a part for or of each, else one.
  // inputPerSlice(), outputPerSlice(): chunks of a slice; inputChunks(), outputChunks(): of the whole buffer.
  constexpr int inputSlices() const {
    return kind == CollectiveKind::reduceScatter || kind == CollectiveKind::allToAll ? ranks : 1;
  }
  constexpr int outputSlices() const {
    return kind == CollectiveKind::allGather || kind == CollectiveKind::allToAll ? ranks : 1;
  }
  constexpr int inputPerSlice() const {
    if (kind == CollectiveKind::custom || customInput > 0) return customInput;
    return kind == CollectiveKind::allReduce ? ranks * chunkFactor : chunkFactor;
  }
  constexpr int outputPerSlice() const { return kind == CollectiveKind::custom ? customOutput : inputPerSlice(); }
  constexpr int inputChunks() const { return inputSlices() * inputPerSlice(); }
  constexpr int outputChunks() const { return outputSlices() * outputPerSlice(); }
};

// allGather(), allReduce(), reduceScatter(), allToAll(): each rank's part of the data is `chunkFactor` chunks, so the
// message of an all-reduce is ranks * chunkFactor.
constexpr Collective allGather(int ranks, int chunkFactor = 1) {
  return {CollectiveKind::allGather, ranks, chunkFactor};
}
constexpr Collective allReduce(int ranks, int chunkFactor = 1) {
  return {CollectiveKind::allReduce, ranks, chunkFactor};
}
constexpr Collective reduceScatter(int ranks, int chunkFactor = 1) {
  return {CollectiveKind::reduceScatter, ranks, chunkFactor};
}
constexpr Collective allToAll(int ranks, int chunkFactor = 1) { return {CollectiveKind::allToAll, ranks, chunkFactor}; }
// Rank r's input arrives at rank r + shift, and behind the last rank comes rank 0. Groups of `shift` ranks send to the
// next group so, each to its own place there.
constexpr Collective sendReceive(int ranks, int chunkFactor = 1, int shift = 1) {
  return {CollectiveKind::sendReceive, ranks, chunkFactor, 0, 0, shift};
}
// What must arrive is what the program says with Builder::expect().
constexpr Collective custom(int ranks, int inputChunks, int outputChunks) {
  return {CollectiveKind::custom, ranks, 1, inputChunks, outputChunks};
}

// `count` chunks of a rank's buffer, plain or as packets.
struct Chunks {
  int rank = 0;
  BufferKind buffer = BufferKind::input;
  int index = 0;
  int count = 1;
  bool packets = false;

  friend constexpr bool operator==(Chunks const& a, Chunks const& b) {
    return a.rank == b.rank && a.buffer == b.buffer && a.index == b.index && a.count == b.count &&
           a.packets == b.packets;
  }
};

enum class DataSync : std::uint8_t;  // in spec.hpp

// How a step was put, of ways that mean the same here and that MSCCL++'s plans tell apart. `joined`: a signal or flush
// in one call with the put before it; `awaiting`: a port's move of packets that may still be on their way.
enum class Spelling : std::uint8_t { plain, joined, awaiting };

// One step of a block; comments name the kinds of step that a member is for, where it is not for all.
struct Step {
  StepKind kind = StepKind::sync;
  ChannelKind link = ChannelKind::memory;
  bool relaxed = false;                      // signal, wait: hands over permission to write, no data
  bool promoted = false;                     // signal, wait: written as relaxed; see passes/promote.hpp
  bool concludes = false;                    // move: makes results of all ranks' contributions; the verifier finds out
  bool written = true;                       // false: put there by the library, not by the program's author
  ReduceKind reduce = ReduceKind::asCalled;  // of a move with several sources
  DataSync dataSync = {};                    // as the author gave it; the syncs that it makes are steps of their own
  Spelling spelling = Spelling::plain;       // of several ways to put the same
  bool grouped = false;                      // move: given to a group of blocks, be it of one
  int number = 0;                            // counts the author's steps of the block; for messages
  int sequence = 0;                          // counts those of the program
  int part = 0, parts = 1;                   // move: this block's part, where a group of blocks shares it
  std::vector<Chunks> sources = {}, targets = {};
  std::vector<int> objects = {};  // signal, wait, flush, a port's move: channels of the rank; acquire, release: its
                                  // semaphores; barrier: which one; a switch's move: its channel
  int blocks = 0;                 // barrier: how many meet
  std::uint64_t unitBytes = 0;    // loopBegin: bytes that one turn moves, of `loopChunks` chunks together
  int loopChunks = 1;
};

// One rank's end; comments name the kinds that a member is for.
struct Channel {
  ChannelKind kind = ChannelKind::memory;
  int peer = 0;                           // memory, port
  BufferKind buffer = BufferKind::input;  // switched
  std::vector<int> ranks = {};            // switched
};

// What one block does, in this order.
struct Block {
  std::vector<Step> steps = {};
};

// One rank's blocks, and what they use: channels and semaphores, by their places here.
struct RankProgram {
  int scratchChunks = 0;
  std::vector<Block> blocks = {};
  std::vector<Channel> channels = {};
  std::vector<int> semaphores = {};  // initial values
};

// One chunk of some rank's input, as a part of a result.
struct Contribution {
  int rank = 0, chunk = 0;  // of that rank's input

  friend constexpr bool operator==(Contribution const& a, Contribution const& b) {
    return a.rank == b.rank && a.chunk == b.chunk;
  }
  friend constexpr bool operator<(Contribution const& a, Contribution const& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.chunk < b.chunk;
  }
};

// A custom collective's demand for one chunk of output.
struct Expectation {
  int rank = 0, chunk = 0;
  std::vector<Contribution> holds = {};
};

struct Program {
  Text name = {};
  Collective collective = {};
  bool inPlace = false;
  Protocol protocol = Protocol::simple;
  bool doubleScratch = false;  // calls use two halves of the scratch buffer in turn
  bool reuseResources = false;
  bool strict = false;  // relaxed signals and waits stay so, whatever the proof needs
  int threads = 1024;   // per block
  std::uint64_t alignment = 16;
  std::uint64_t minBytes = 0, maxBytes = ~std::uint64_t{0};
  std::vector<RankProgram> ranks = {};
  std::vector<Expectation> expectations = {};
  Text mistake = {};  // of the program's use of the builder; empty: none

  constexpr int size() const { return static_cast<int>(ranks.size()); }
  constexpr int chunks(int rank, BufferKind buffer) const {
    return buffer == BufferKind::input    ? collective.inputChunks()
           : buffer == BufferKind::output ? collective.outputChunks()
                                          : ranks[static_cast<std::size_t>(rank)].scratchChunks;
  }
  // Chunks of one slice of the buffer, which the message's bytes are dealt out to.
  constexpr int perSlice(BufferKind buffer) const {
    return buffer == BufferKind::input ? collective.inputPerSlice() : collective.outputPerSlice();
  }

  // The same memory under its one name: an in-place collective's smaller buffer is a part of its larger one.
  constexpr Chunks canonical(Chunks chunks) const {
    if (!inPlace || chunks.buffer == BufferKind::scratch) return chunks;
    if (collective.kind == CollectiveKind::reduceScatter) {
      if (chunks.buffer == BufferKind::output) chunks.index += chunks.rank * collective.chunkFactor;
      chunks.buffer = BufferKind::input;
    } else {
      if (collective.kind == CollectiveKind::allGather && chunks.buffer == BufferKind::input) {
        chunks.index += chunks.rank * collective.chunkFactor;
      }
      chunks.buffer = BufferKind::output;
    }
    return chunks;
  }
};

// By rank and channel, the place of its partner among the peer's: the n-th from a to b meets the n-th from b to a. -1:
// the peer has made no such channel, or the channel is a switch's. In one pass: programs of many ranks have many.
constexpr std::vector<std::vector<int>> pairChannels(Program const& program) {
  auto const ranks = program.ranks.size();
  // Channels of a rank to a peer of one kind, in order.
  auto const listOf = [&](std::size_t rank, std::size_t peer, ChannelKind kind) {
    return (rank * ranks + peer) * 2 + (kind == ChannelKind::port ? 1 : 0);
  };
  auto const isPair = [&](Channel const& channel) {
    return channel.kind != ChannelKind::switched && channel.peer >= 0 && channel.peer < program.size();
  };
  std::vector<std::vector<int>> lists(2 * ranks * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto const& channels = program.ranks[rank].channels;
    for (std::size_t c = 0; c < channels.size(); ++c) {
      if (!isPair(channels[c])) continue;
      lists[listOf(rank, static_cast<std::size_t>(channels[c].peer), channels[c].kind)].push_back(static_cast<int>(c));
    }
  }
  std::vector<std::vector<int>> pairs(ranks);
  std::vector<std::size_t> met(2 * ranks * ranks, 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (auto const& channel : program.ranks[rank].channels) {
      int pair = -1;
      if (isPair(channel)) {
        auto const peer = static_cast<std::size_t>(channel.peer);
        auto const nth = met[listOf(rank, peer, channel.kind)]++;
        auto const& theirs = lists[listOf(peer, rank, channel.kind)];
        if (nth < theirs.size()) pair = theirs[nth];
      }
      pairs[rank].push_back(pair);
    }
  }
  return pairs;
}

}  // namespace mscclpp::dsl
