// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a program once, symbolically, for several calls, and finds whether it is right in every run.
//
// One run stands for all: every signal, release and packet has one sender and one receiver (bounds.hpp), so no schedule
// changes which step meets which. A step that cannot go on here can go on nowhere. Two steps that touch the same piece,
// one writing, are ordered here by what the later one knows (knowledge.hpp), or nowhere. Values follow from the order.
//
// Between its calls a rank's caller may write its input and read and write its output. Loops take three turns. Scratch
// memory of one call may be cut differently from the next's, whose messages may be longer: across calls whole chunks
// meet.
#pragma once

#include <utility>
#include <vector>

#include "mscclpp/dsl/core/demand.hpp"
#include "mscclpp/dsl/core/program.hpp"
#include "mscclpp/dsl/detail/verify/diagnostics.hpp"
#include "mscclpp/dsl/detail/verify/handovers.hpp"
#include "mscclpp/dsl/detail/verify/knowledge.hpp"
#include "mscclpp/dsl/detail/verify/memory_state.hpp"
#include "mscclpp/dsl/detail/verify/size.hpp"

namespace mscclpp::dsl::detail {

// What a step reduces: part of the ranks' contributions, all, or now this and now that.
enum class Reduces : std::uint8_t { none, part, all, both };

class Verifier {
 public:
  static constexpr int turns = turnsOfLoops;

  // With `handovers`, what relaxed signals would have to hand over counts as handed over, and is written there.
  constexpr explicit Verifier(Program const& program, Handovers* handovers = nullptr)
      : program_(program),
        handovers_(handovers),
        calls_(program.doubleScratch ? 3 : 2),
        groups_(static_cast<int>(cutOf(program).groups)),
        loops_(cutOf(program).loops),
        memory_(program, static_cast<int>(cutOf(program).parts())) {
    int most = 0;
    for (int rank = 0; rank < program.size(); ++rank) {
      auto const& mine = of(rank);
      ranks_.push_back({});
      auto& state = ranks_.back();
      state.firstBlock = static_cast<int>(blocks_.size());
      for (int b = 0; b < static_cast<int>(mine.blocks.size()); ++b) {
        blocks_.push_back({});
        blocks_.back().rank = rank;
        blocks_.back().block = b;
        blocks_.back().firstStep = reductions_.size();
        reductions_.resize(reductions_.size() + mine.blocks[at(b)].steps.size(), Reduces::none);
        most = b + 1 > most ? b + 1 : most;
      }
    }
    // Blocks of one number hear most of each other, so they are neighbours.
    for (int b = 0; b < most; ++b) {
      for (int rank = 0; rank < program.size(); ++rank) {
        if (b < static_cast<int>(of(rank).blocks.size()))
          blocks_[at(ranks_[at(rank)].firstBlock + b)].actor = actors_++;
      }
    }
    copies_.reserve(4 * reductions_.size());
    auto pairs = pairChannels(program);
    for (int rank = 0; rank < program.size(); ++rank) {
      auto& state = ranks_[at(rank)];
      state.caller = actors_++;
      state.queues.resize(of(rank).channels.size());
      state.tokens.resize(of(rank).semaphores.size());
      makePorts(rank);
      state.pairs = std::move(pairs[at(rank)]);
    }
    for (int rank = 0; rank < program.size(); ++rank) {
      auto& state = ranks_[at(rank)];
      for (std::size_t s = 0; s < state.tokens.size(); ++s) {
        for (int i = 0; i < of(rank).semaphores[s]; ++i) state.tokens[s].waiting.push_back(copy(Knowledge(actors_)));
      }
      state.knows = Knowledge(actors_);
      callerWrites(rank);
      for (int b = 0; b < static_cast<int>(of(rank).blocks.size()); ++b) begin(blocks_[at(state.firstBlock + b)]);
    }
  }

  // The diagnostic of what is wrong; empty: nothing.
  constexpr Text run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (auto& block : blocks_) {
        while (block.call < calls_ && advance(block)) {
          progress = true;
          if (!diagnostic_.empty()) return diagnostic_;
        }
      }
    }
    for (auto const& block : blocks_) {
      if (block.call < calls_) return deadLock();
    }
    return diagnostic_;
  }

  // Whether chunks of different places of the message meet, so that all chunks must be equally long.
  constexpr bool needsEvenChunks() const { return needsEven_; }
  // Whether plain data are overwritten whose readers are known by packets alone to have read them.
  constexpr bool reliesOnPackets() const { return reliesOnPackets_; }
  // By step, in the order of ranks, blocks and steps.
  constexpr std::vector<Reduces> const& reductions() const { return reductions_; }

 private:
  struct BlockState {
    int rank = 0, block = 0;
    int actor = 0;
    std::size_t firstStep = 0;  // among all
    std::size_t step = 0;
    int call = 0;
    int phase = 0, inPhase = 0;
    int pieces = 0;  // of the phase, so far
    int turn = -1;   // of the loop it is in
    std::size_t loop = 0;
    int round = -1;        // of its barrier, at which it has arrived
    bool ended = false;    // its call
    Knowledge control{};   // of its first warp, which signals and waits
    int controlCopy = -1;  // the copy that is still the same; -1: none
    int all = -1;          // copy of what all its threads know from the last sync on
    Knowledge arrived{};   // with packets of this phase
  };
  // What the arrival of packets tells: a copy, and that one piece more was done.
  struct Message {
    int copy = 0;
    int actor = -1, phase = 0, bit = -1;
  };
  struct Queue {
    std::vector<int> waiting = {};  // copies of what their senders knew
    std::vector<char> relaxed = {};
    std::vector<Place> senders = {};  // with Handovers
    std::size_t taken = 0;
  };
  // What one block has asked of a port channel. The proxy does it in the order of asking, but what it moves may arrive
  // in any order: only a signal and a flush tell that all moves before them are done. A packet tells of its own piece.
  struct Lane {
    int block = 0;
    int actor = -1;    // the proxy, moving plain data
    int packets = -1;  // the first of the proxy's actors that move packets, one for each call; -1: it moves none
    int asked = -1;    // whose phases count this block's moves, where other blocks ask as well; -1: nobody does
    int moves = 0;     // of plain data: phases of `actor`
    int call = 0, phase = 0, pieces = 0;  // of packets: the phase of the call's actor, and its pieces so far
  };
  struct Port {
    std::vector<Lane> lanes{};
  };
  struct BarrierRound {
    int arrived = 0;
    Knowledge knows{};
  };
  struct RankState {
    int firstBlock = 0;
    int caller = 0;
    int phase = 0;
    Knowledge knows{};                            // of the caller
    std::vector<Queue> queues = {}, tokens = {};  // signals that came over each channel; releases
    std::vector<Port> ports = {};
    std::vector<int> pairs = {};                           // by channel: the peer's
    std::vector<std::vector<BarrierRound>> barriers = {};  // by barrier and round
    std::vector<std::vector<int>> rounds = {};             // by barrier and block: how many it has come to
  };

  static constexpr Place placeOf(BlockState const& block) {
    return {block.rank, block.block, static_cast<int>(block.step)};
  }
  // Whether it may be read by who has this knowledge.
  constexpr bool isHandedOver(Stamp const& written, Knowledge const& knows, Stamp const& reader) {
    if (knows.knowsData(written)) return true;
    if (handovers_ == nullptr || !knows.knowsOrder(written)) return false;
    return handovers_->demand(written, {reader.rank, reader.block, 0}, copies_);
  }

  static constexpr int everyPhase = 1 << 30;

  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }
  constexpr RankProgram const& of(int rank) const { return program_.ranks[at(rank)]; }

  constexpr int copy(Knowledge const& knows) {
    copies_.push_back(knows);
    return static_cast<int>(copies_.size()) - 1;
  }
  constexpr int copyOfControl(BlockState& block) {
    if (block.controlCopy < 0) block.controlCopy = copy(block.control);
    return block.controlCopy;
  }
  constexpr Knowledge const& copied(int id) const { return copies_[at(id)]; }
  // For whoever is to change it.
  static constexpr Knowledge& controlOf(BlockState& block) {
    block.controlCopy = -1;
    return block.control;
  }

  // ---- one block ----------------------------------------------------------------------------------------------------

  constexpr void begin(BlockState& block) {
    block.step = 0;
    block.ended = false;
    controlOf(block) = ranks_[at(block.rank)].knows;
    block.control.completePhases(block.actor, block.phase);
    block.all = copyOfControl(block);
    block.arrived = Knowledge(actors_);
  }

  constexpr void endPhase(BlockState& block) {
    ++block.phase;
    block.inPhase = 0;
    block.pieces = 0;
    controlOf(block).joinCause(block.arrived);
    block.control.completePhases(block.actor, block.phase);
    block.all = copyOfControl(block);
  }

  // Does the block's next step; false where it has to wait.
  constexpr bool advance(BlockState& block) {
    if (block.ended) return false;
    auto const& steps = of(block.rank).blocks[at(block.block)].steps;
    if (block.step == steps.size()) {
      endPhase(block);
      block.ended = true;
      endCall(block.rank);
      return true;
    }
    auto const& step = steps[block.step];
    if (!perform(block, step)) return false;
    ++block.step;
    return true;
  }

  constexpr bool perform(BlockState& block, Step const& step) {
    auto& rank = ranks_[at(block.rank)];
    switch (step.kind) {
      case StepKind::move:
        return step.link == ChannelKind::port ? portMove(block, step) : move(block, step);
      case StepKind::signal:
        for (int const id : step.objects) {
          auto const& channel = of(block.rank).channels[at(id)];
          auto& queue = ranks_[at(channel.peer)].queues[at(rank.pairs[at(id)])];
          bool const port = channel.kind == ChannelKind::port;
          queue.waiting.push_back(port ? copy(behindMoves(block, id)) : copyOfControl(block));
          queue.relaxed.push_back(step.relaxed && !port);
          if (handovers_ != nullptr) queue.senders.push_back(placeOf(block));
        }
        return true;
      case StepKind::wait:
        for (int const id : step.objects) {
          auto const& queue = rank.queues[at(id)];
          if (queue.taken == queue.waiting.size()) return false;
        }
        for (int const id : step.objects) {
          auto& queue = rank.queues[at(id)];
          int const sent = queue.waiting[queue.taken];
          bool const relaxed = step.relaxed || queue.relaxed[queue.taken];
          controlOf(block).join(copied(sent), !relaxed);
          if (handovers_ != nullptr) handovers_->add({queue.senders[queue.taken], placeOf(block), sent, relaxed});
          ++queue.taken;
        }
        return true;
      case StepKind::flush:
        for (int const id : step.objects) controlOf(block).join(behindMoves(block, id));
        return true;
      case StepKind::release:
        for (int const id : step.objects) rank.tokens[at(id)].waiting.push_back(copyOfControl(block));
        return true;
      case StepKind::acquire:
        for (int const id : step.objects) {
          auto const& queue = rank.tokens[at(id)];
          if (queue.taken == queue.waiting.size()) return false;
        }
        for (int const id : step.objects) {
          auto& queue = rank.tokens[at(id)];
          controlOf(block).join(copied(queue.waiting[queue.taken++]));
        }
        return true;
      case StepKind::sync:
        endPhase(block);
        return true;
      case StepKind::barrier:
        return arrive(block, step);
      case StepKind::loopBegin:
        block.turn = 0;
        block.loop = block.step;
        return true;
      case StepKind::loopEnd:
        if (++block.turn < turns) {
          block.step = block.loop;
        } else {
          block.turn = -1;
        }
        return true;
    }
    return true;
  }

  constexpr bool arrive(BlockState& block, Step const& step) {
    auto& rank = ranks_[at(block.rank)];
    auto const id = at(step.objects[0]);
    if (rank.barriers.size() <= id) {
      rank.barriers.resize(id + 1);
      rank.rounds.resize(id + 1);
    }
    if (rank.rounds[id].empty()) rank.rounds[id].resize(of(block.rank).blocks.size(), 0);
    auto& rounds = rank.barriers[id];
    if (block.round < 0) {
      endPhase(block);
      block.round = rank.rounds[id][at(block.block)]++;
      if (rounds.size() <= at(block.round)) rounds.push_back({0, Knowledge(actors_)});
      ++rounds[at(block.round)].arrived;
      rounds[at(block.round)].knows.join(block.control);
    }
    auto const& round = rounds[at(block.round)];
    if (round.arrived < step.blocks) return false;
    controlOf(block).join(round.knows);
    block.all = copyOfControl(block);
    block.round = -1;
    return true;
  }

  // In verifier_ports.hpp.
  constexpr void makePorts(int rank);
  constexpr Lane& laneOf(BlockState const& block, int channel);
  constexpr Stamp nextMove(BlockState& block, Lane& lane, bool packets);
  constexpr Knowledge behindMoves(BlockState const& block, int channel);
  constexpr bool portMove(BlockState& block, Step const& step);

  // In verifier_moves.hpp and verifier_ends.hpp.
  struct Access {
    Stamp stamp;
    Knowledge const* knows;
    Chunks chunk;  // one, canonical
    Chunks said;   // as the program names it
    int part;
  };
  constexpr bool move(BlockState& block, Step const& step);
  template <class F>
  constexpr void forEachAwaited(BlockState const& block, Step const& step, F&& f);
  constexpr bool packetsReady(BlockState const& block, Step const& step);
  constexpr int read(Access const& access);
  constexpr void write(Access const& access, int value, int message);
  constexpr void checkPlace(Access const& access, int value);
  constexpr int combine(Step const& step, std::vector<int> const& values, Stamp const& stamp);
  template <class F>
  constexpr void forEachPart(BlockState const& block, Step const& step, F&& f) const;
  template <class F>
  constexpr void forEachPiece(BlockState const& block, Step const& step, F&& f) const;
  constexpr Access pieceOf(Chunks operand, Stamp const& stamp, Knowledge const& knows, int chunk, int part) const;
  template <class F>
  constexpr void forEachOther(Access const& access, F&& f);
  constexpr Stamp stampOf(BlockState const& block, int actor, int phase, int inPhase) const {
    return {actor, phase, inPhase, 0, -1, block.call, block.rank, block.block, static_cast<int>(block.step)};
  }
  // Pieces beyond these are known with their whole phase only.
  static constexpr int bitOf(int piece) { return piece < Stamp::bits ? piece : -1; }
  constexpr int told(BlockState const& block, Step const& step, int known, int chunk, int part);
  constexpr void callerWrites(int rank);
  constexpr void endCall(int rank);
  constexpr void checkOutput(int rank, int call);
  constexpr Text deadLock();
  constexpr Text overwritten(BlockState const& block);
  constexpr Text waitOf(BlockState const& block) const;
  constexpr int awaitedBlock(BlockState const& block) const;

  Program const& program_;
  Handovers* handovers_;
  int calls_;
  int groups_;
  bool loops_;
  MemoryState memory_;
  std::vector<RankState> ranks_;
  std::vector<BlockState> blocks_;
  int actors_ = 0;
  bool needsEven_ = false, reliesOnPackets_ = false;
  std::vector<Reduces> reductions_;
  std::vector<Knowledge> copies_;  // as it was, for whoever hears of it later
  std::vector<Message> messages_;  // of packets
  Text diagnostic_;
};

}  // namespace mscclpp::dsl::detail

#include "mscclpp/dsl/detail/verify/verifier_ends.hpp"
#include "mscclpp/dsl/detail/verify/verifier_moves.hpp"
#include "mscclpp/dsl/detail/verify/verifier_ports.hpp"
