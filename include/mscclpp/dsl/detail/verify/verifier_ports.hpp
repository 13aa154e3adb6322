// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the verifier that knows what proxies do: what blocks have asked of port channels, and what a signal, a
// flush or a packet tells of it. Part of verifier.hpp, which includes it.
#pragma once

#include "mscclpp/dsl/detail/verify/verifier.hpp"

namespace mscclpp::dsl::detail {

constexpr void Verifier::makePorts(int rank) {
  auto& ports = ranks_[at(rank)].ports;
  ports.resize(of(rank).channels.size());
  forEachPortUse(of(rank), [&](int channel, int block, bool packets) {
    ports[at(channel)].lanes.push_back({.block = block, .actor = actors_++, .packets = packets ? actors_ : -1});
    if (packets) actors_ += calls_;
  });
  for (auto& port : ports) {
    for (auto& lane : port.lanes) lane.asked = port.lanes.size() > 1 ? actors_++ : -1;
  }
}

constexpr Verifier::Lane& Verifier::laneOf(BlockState const& block, int channel) {
  auto& lanes = ranks_[at(block.rank)].ports[at(channel)].lanes;
  std::size_t i = 0;
  while (lanes[i].block != block.block) ++i;
  return lanes[i];
}

// Of this block's next move by the port.
constexpr Stamp Verifier::nextMove(BlockState& block, Lane& lane, bool packets) {
  if (!packets) {
    auto const stamp = stampOf(block, lane.actor, lane.moves++, 0);
    if (lane.asked >= 0) controlOf(block).completePhases(lane.asked, lane.moves);
    return stamp;
  }
  if (lane.call != block.call) {
    lane.call = block.call;
    lane.phase = lane.pieces = 0;
  }
  // Which move it is does not matter to packets, of which each place has one in a call.
  return stampOf(block, lane.packets + block.call, lane.phase, 0);
}

// What a signal or flush of the block tells: that all is done which was asked before, by it and by those of whose
// asking it has heard.
constexpr Knowledge Verifier::behindMoves(BlockState const& block, int channel) {
  auto knows = block.control;
  for (auto const& lane : ranks_[at(block.rank)].ports[at(channel)].lanes) {
    bool const own = lane.block == block.block;
    knows.completePhases(lane.actor, own ? lane.moves : block.control.phasesOf(lane.asked));
    if (!own || lane.packets < 0) continue;
    for (int call = 0; call < lane.call; ++call) knows.completePhases(lane.packets + call, everyPhase);
    knows.completePhases(lane.packets + lane.call, lane.phase);
    for (int piece = 0; piece < lane.pieces; ++piece) {
      knows.completePiece(lane.packets + lane.call, lane.phase, piece);
    }
  }
  return knows;
}

// The proxy does it, some time before a flush of the channel, or a wait for its signal, ends. Packets are awaited by
// the block, which meets before it asks, and moved as they are.
constexpr bool Verifier::portMove(BlockState& block, Step const& step) {
  bool const packets = step.sources[0].packets;
  if (packets) {
    if (!packetsReady(block, step)) return false;
    auto stamp = stampOf(block, block.actor, block.phase, block.inPhase++);
    forEachPiece(block, step, [&](int chunk, int part) {
      stamp.piece = chunk;
      stamp.bit = bitOf(block.pieces++);
      int const known = told(block, step, block.all, chunk, part);
      block.arrived.joinCause(copied(known));
      read(pieceOf(step.sources[0], stamp, copied(known), chunk, part));
    });
    endPhase(block);
  }
  int const known = copyOfControl(block);
  auto& lane = laneOf(block, step.objects[0]);
  auto stamp = nextMove(block, lane, packets);
  forEachPiece(block, step, [&](int chunk, int part) {
    stamp.piece = chunk;
    stamp.bit = packets ? bitOf(lane.pieces++) : -1;
    int const value = read(pieceOf(step.sources[0], stamp, copied(known), chunk, part));
    int const message = static_cast<int>(messages_.size());
    if (packets) messages_.push_back({known, stamp.actor, stamp.phase, stamp.bit});
    if (diagnostic_.empty()) write(pieceOf(step.targets[0], stamp, copied(known), chunk, part), value, message);
  });
  if (lane.pieces >= Stamp::bits) {
    ++lane.phase;
    lane.pieces = 0;
  }
  return true;
}

}  // namespace mscclpp::dsl::detail
