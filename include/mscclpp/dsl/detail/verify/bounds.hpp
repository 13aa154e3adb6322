// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules that a program keeps or breaks step by step, whatever its schedule: every operand lies inside its buffer, every
// signal has its wait, every channel one block at each end.
//
// One block at each end makes a program's order of steps the same whoever runs first: the i-th signal ends the i-th
// wait. So one run of the verifier stands for all of them.
#pragma once

#include <vector>

#include "mscclpp/base/config.hpp"
#include "mscclpp/dsl/detail/verify/size.hpp"
#include "mscclpp/dsl/detail/verify/uses.hpp"

namespace mscclpp::dsl {

namespace detail {

class Bounds {
 public:
  constexpr explicit Bounds(Program const& program) : program_(program), pairs_(pairChannels(program)) {}

  // The first rule that is broken; empty: none.
  constexpr Text check() {
    if (!program_.mistake.empty()) return program_.mistake;
    if (program_.size() > maxTeamSize) return say(program_.size(), " ranks; at most ", maxTeamSize);
    if (program_.size() != program_.collective.ranks) {
      return say("steps for ", program_.size(), " ranks of a collective of ", program_.collective.ranks);
    }
    if (int const shift = program_.collective.shift; shift < 1 || shift > program_.size()) {
      return say("data go ", shift, " ranks ahead; 1 to ", program_.size());
    }
    if (program_.alignment == 0 || 16 % program_.alignment != 0) {
      return say("chunks that begin at multiples of ", program_.alignment, " bytes; they begin at multiples of 16");
    }
    if (program_.threads < 32 || program_.threads > 1024 || program_.threads % 32 != 0) {
      return say("blocks of ", program_.threads, " threads; a multiple of 32 up to 1024");
    }
    bool any = false;
    for (int rank = 0; rank < program_.size(); ++rank) {
      for (auto const& block : of(rank).blocks) any |= !block.steps.empty();
    }
    if (!any) return say("no rank has a step");
    findReach();
    for (int rank = 0; rank < program_.size(); ++rank) {
      if (auto text = checkRank(rank); !text.empty()) return text;
    }
    if (auto text = tooLarge(program_); !text.empty()) return text;
    for (int rank = 0; rank < program_.size(); ++rank) {
      Text problem;
      uses_.push_back(usesOf(program_, rank, problem));
      if (!problem.empty()) return problem;
    }
    for (int rank = 0; rank < program_.size(); ++rank) {
      if (auto text = checkUses(rank); !text.empty()) return text;
    }
    return {};
  }

 private:
  constexpr RankProgram const& of(int rank) const { return program_.ranks[static_cast<std::size_t>(rank)]; }
  constexpr int pairOf(int rank, int channel) const {
    return pairs_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(channel)];
  }

  constexpr Text checkRank(int rank) {
    auto const& mine = of(rank);
    for (int b = 0; b < static_cast<int>(mine.blocks.size()); ++b) {
      auto const& steps = mine.blocks[static_cast<std::size_t>(b)].steps;
      bool inLoop = false;
      for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
        auto const& step = steps[static_cast<std::size_t>(s)];
        bool const loop = step.kind == StepKind::loopBegin || step.kind == StepKind::loopEnd;
        Text text;
        if (loop) {
          text = checkLoop(step, inLoop);
        } else {
          text = checkStep(rank, step);
        }
        if (!text.empty()) return say(describe(program_, rank, b, s), " ", text);
        if (step.kind == StepKind::loopBegin) inLoop = true;
        if (step.kind == StepKind::loopEnd) inLoop = false;
      }
      if (inLoop) return say("rank ", rank, " block ", b, " ends inside its loop");
    }
    return {};
  }

  constexpr Text checkLoop(Step const& step, bool inLoop) {
    if ((step.kind == StepKind::loopBegin) == inLoop) return say(inLoop ? "is inside a loop" : "has no beginning");
    if (step.kind == StepKind::loopEnd) return {};
    if (step.unitBytes == 0 || step.unitBytes % 16 != 0 || step.loopChunks < 1) {
      return say("moves ", step.unitBytes, " bytes of ", step.loopChunks,
                 " chunks each turn; a multiple of 16 of at least 1");
    }
    if (unitBytes_ != 0 && (unitBytes_ != step.unitBytes || loopChunks_ != step.loopChunks)) {
      return say("has turns of ", step.unitBytes, " bytes of ", step.loopChunks,
                 " chunks where another loop has turns of ", unitBytes_, " bytes of ", loopChunks_,
                 ": they would not have equally many");
    }
    unitBytes_ = step.unitBytes;
    loopChunks_ = step.loopChunks;
    return {};
  }

  constexpr Text checkStep(int rank, Step const& step) {
    auto const& mine = of(rank);
    switch (step.kind) {
      case StepKind::move:
        return checkMove(rank, step);
      case StepKind::signal:
      case StepKind::wait:
      case StepKind::flush:
        for (int const id : step.objects) {
          if (id < 0 || id >= static_cast<int>(mine.channels.size())) {
            return say("uses channel ", id, "; the rank has ", mine.channels.size());
          }
          auto const kind = mine.channels[static_cast<std::size_t>(id)].kind;
          if (kind == ChannelKind::switched)
            return say("uses channel ", id, ", a switch channel, which has no signals");
          if (step.kind == StepKind::flush && kind != ChannelKind::port) {
            return say("flushes channel ", id, ", which is no port channel");
          }
          if (kind != step.link) return say("uses channel ", id, " as one of another kind");
          if (step.kind != StepKind::flush && pairOf(rank, id) < 0) {
            int const peer = mine.channels[static_cast<std::size_t>(id)].peer;
            return say("uses a channel to rank ", peer, " for which rank ", peer, " has none back: make one there");
          }
        }
        if (step.objects.empty()) return say("names no channel");
        return {};
      case StepKind::acquire:
      case StepKind::release:
        for (int const id : step.objects) {
          if (id < 0 || id >= static_cast<int>(mine.semaphores.size())) {
            return say("uses semaphore ", id, "; the rank has ", mine.semaphores.size());
          }
        }
        if (step.objects.empty()) return say("names no semaphore");
        return {};
      case StepKind::barrier:
        if (step.objects.size() != 1 || step.blocks < 1) return say("is of ", step.blocks, " blocks");
        return {};
      default:
        return {};
    }
  }

  constexpr Text checkMove(int rank, Step const& step) {
    if (step.sources.empty() || step.targets.empty()) return say("has no source or no target");
    if (step.parts < 1 || step.parts > 64 || step.part < 0 || step.part >= step.parts) {
      return say("is part ", step.part, " of ", step.parts, "; a group has 1 to 64 blocks");
    }
    int const count = step.sources[0].count;
    for (auto const* operands : {&step.sources, &step.targets}) {
      bool const source = operands == &step.sources;
      for (auto const& chunks : *operands) {
        if (auto text = checkOperand(rank, step, chunks, source); !text.empty()) return text;
        if (chunks.count != count) {
          return say("moves ", count, " chunks of ", describe(step.sources[0]), " but ", chunks.count, " of ",
                     describe(chunks));
        }
      }
    }
    for (std::size_t i = 0; i < step.targets.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        auto const a = program_.canonical(step.targets[i]);
        auto const b = program_.canonical(step.targets[j]);
        if (a.rank == b.rank && a.buffer == b.buffer && a.index < b.index + b.count && b.index < a.index + a.count) {
          return say("writes ", describe(step.targets[i]), " twice");
        }
      }
    }
    if (step.link == ChannelKind::port) {
      if (step.objects.size() != 1) return say("names no port channel");
      if (step.sources.size() != 1 || step.sources[0].rank != rank)
        return say("is a port's: it has one source of the own rank");
      if (step.targets.size() != 1 || step.targets[0].rank == rank)
        return say("is a port's: it has one target at the peer");
      int const id = step.objects[0];
      auto const& channels = of(rank).channels;
      if (id < 0 || id >= static_cast<int>(channels.size()) ||
          channels[static_cast<std::size_t>(id)].kind != ChannelKind::port) {
        return say("uses channel ", id, ", which is no port channel");
      }
      if (int const peer = channels[static_cast<std::size_t>(id)].peer; peer != step.targets[0].rank) {
        return say("writes ", describe(step.targets[0]), " over a port channel to rank ", peer);
      }
      if (step.sources[0].packets != step.targets[0].packets) {
        return say("moves ", describe(step.sources[0]), " to ", describe(step.targets[0]),
                   ": a port moves packets as packets and plain data as such");
      }
    }
    return {};
  }

  constexpr Text checkOperand(int rank, Step const& step, Chunks const& chunks, bool source) {
    if (chunks.rank < 0 || chunks.rank >= program_.size()) {
      return say("names rank ", chunks.rank, "; the collective has ranks 0 to ", program_.size() - 1);
    }
    int const room = program_.chunks(chunks.rank, chunks.buffer);
    if (chunks.index < 0 || chunks.count < 1 || chunks.count > room - chunks.index) {
      return say("names ", describe(chunks), ", which has ", room, " chunks");
    }
    if (chunks.packets && chunks.buffer != BufferKind::scratch) {
      return say("has packets in the ", nameOf(chunks.buffer), " buffer; packets live in scratch");
    }
    if (chunks.packets && program_.protocol != Protocol::lowLatency) {
      return say("moves packets; the program's protocol must be lowLatency");
    }
    if (chunks.packets && source && chunks.rank != rank) {
      return say("reads packets of rank ", chunks.rank, "; only that rank itself can");
    }
    if (chunks.rank == rank || reaches_[reachOf(rank, chunks.rank, step.link)] != 0) return {};
    return say("touches ", describe(chunks), ", to which the rank has no ",
               step.link == ChannelKind::memory ? "memory"
               : step.link == ChannelKind::port ? "port"
                                                : "switch",
               " channel");
  }

  constexpr std::size_t reachOf(int rank, int peer, ChannelKind link) const {
    return static_cast<std::size_t>((rank * program_.size() + peer) * 3 + static_cast<int>(link));
  }
  // Which memory each rank has channels to.
  constexpr void findReach() {
    reaches_.resize(static_cast<std::size_t>(3 * program_.size() * program_.size()), 0);
    for (int rank = 0; rank < program_.size(); ++rank) {
      for (auto const& channel : of(rank).channels) {
        if (channel.kind != ChannelKind::switched) reaches_[reachOf(rank, channel.peer, channel.kind)] = 1;
        for (int const peer : channel.ranks) reaches_[reachOf(rank, peer, channel.kind)] = 1;
      }
    }
  }

  constexpr Text checkUses(int rank);

  Program const& program_;
  std::vector<std::vector<int>> pairs_;  // by rank and channel
  std::vector<RankUses> uses_;           // by rank
  std::vector<char> reaches_;
  std::uint64_t unitBytes_ = 0;
  int loopChunks_ = 0;
};

constexpr Text Bounds::checkUses(int rank) {
  auto const& mine = uses_[static_cast<std::size_t>(rank)];
  auto const twoBlocks = [&](Uses const& uses, std::string_view what) {
    return say("rank ", rank, " ", what, " from block ", uses.block, " and from block ", uses.secondBlock,
               ", so which comes first is not known: one block does it");
  };
  for (int c = 0; c < static_cast<int>(mine.signals.size()); ++c) {
    auto const at = static_cast<std::size_t>(c);
    auto const& channel = of(rank).channels[at];
    if (mine.signals[at].otherBlock)
      return twoBlocks(mine.signals[at], say("signals rank ", channel.peer, " over channel ", c).view());
    if (mine.waits[at].otherBlock)
      return twoBlocks(mine.waits[at], say("waits for rank ", channel.peer, " over channel ", c).view());
    int const pair = pairOf(rank, c);
    if (pair < 0) continue;
    auto const& waits = uses_[static_cast<std::size_t>(channel.peer)].waits[static_cast<std::size_t>(pair)];
    if (!mine.signals[at].sameNumber(waits)) {
      return say("rank ", rank, " signals rank ", channel.peer, " over channel ", c, " ", counted(mine.signals[at]),
                 ", rank ", channel.peer, " waits for it ", counted(waits));
    }
  }
  for (int s = 0; s < static_cast<int>(mine.acquires.size()); ++s) {
    auto const at = static_cast<std::size_t>(s);
    if (mine.releases[at].otherBlock) return twoBlocks(mine.releases[at], say("releases semaphore ", s).view());
    if (mine.acquires[at].otherBlock) return twoBlocks(mine.acquires[at], say("acquires semaphore ", s).view());
    if (!mine.releases[at].sameNumber(mine.acquires[at])) {
      return say("rank ", rank, " releases semaphore ", s, " ", counted(mine.releases[at]), " and acquires it ",
                 counted(mine.acquires[at]), ": the next call would find another value");
    }
    if (of(rank).semaphores[at] < 0)
      return say("rank ", rank, " semaphore ", s, " begins at ", of(rank).semaphores[at]);
  }
  for (std::size_t id = 0; id < mine.barriers.size(); ++id) {
    auto const& use = mine.barriers[id];
    if (use.blocks == 0) continue;
    if (static_cast<int>(use.by.size()) != use.blocks) {
      return say("rank ", rank, " barrier ", id, " is of ", use.blocks, " blocks, and ", use.by.size(), " come to it");
    }
    for (auto const& by : use.by) {
      if (by.sameNumber(use.by[0])) continue;
      return say("rank ", rank, " barrier ", id, ": block ", use.by[0].block, " comes to it ", counted(use.by[0]),
                 ", block ", by.block, " ", counted(by));
    }
  }
  return {};
}

}  // namespace detail

}  // namespace mscclpp::dsl
