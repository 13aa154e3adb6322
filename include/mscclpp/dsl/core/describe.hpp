// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps and operands in words, for the sentences of builder and verifier.
#pragma once

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

// "output[2] of rank 1", "packets in scratch[0..3] of rank 0"
constexpr Text describe(Chunks const& chunks) {
  Text text;
  if (chunks.packets) text.add("packets in ");
  text.add(nameOf(chunks.buffer)).add("[").add(chunks.index);
  if (chunks.count != 1) text.add("..").add(chunks.index + chunks.count - 1);
  return text.add("] of rank ").add(chunks.rank);
}

// "put", "reduce", ... by where the operands of a move of `rank` lie.
constexpr std::string_view moveName(Step const& step, int rank) {
  if (step.link == ChannelKind::switched) {
    return step.sources.size() > 1 ? "switch reduce" : "switch broadcast";
  }
  bool remoteSource = false, packetSource = false, remoteTarget = false, packetTarget = false;
  for (auto const& source : step.sources) {
    remoteSource |= source.rank != rank;
    packetSource |= source.packets;
  }
  for (auto const& target : step.targets) {
    remoteTarget |= target.rank != rank;
    packetTarget |= target.packets;
  }
  if (step.sources.size() > 1) return packetSource ? "reduce of packets" : "reduce";
  if (remoteSource) return "get";
  if (remoteTarget) return packetSource ? "readPutPackets" : packetTarget ? "putPackets" : "put";
  return packetSource ? "unpackPackets" : packetTarget ? "copyPackets" : "copy";
}

// As moveName() for moves. Signals and waits that were written as relaxed and had to be ordered are "made ordered".
constexpr std::string_view nameOf(Step const& step, int rank) {
  switch (step.kind) {
    case StepKind::move:
      return moveName(step, rank);
    case StepKind::signal:
      return step.relaxed ? "relaxed signal" : step.promoted ? "signal, made ordered" : "signal";
    case StepKind::wait:
      return step.relaxed ? "relaxed wait" : step.promoted ? "wait, made ordered" : "wait";
    case StepKind::flush:
      return "flush";
    case StepKind::sync:
      return "sync";
    case StepKind::barrier:
      return "barrier";
    case StepKind::acquire:
      return "acquire";
    case StepKind::release:
      return "release";
    case StepKind::loopBegin:
      return "loop";
    case StepKind::loopEnd:
      return "end of loop";
  }
  return "step";
}

// "rank 1 block 0 step 3 (put)"
constexpr Text describe(Program const& program, int rank, int block, int step) {
  auto const& steps = program.ranks[static_cast<std::size_t>(rank)].blocks[static_cast<std::size_t>(block)].steps;
  auto const& found = steps[static_cast<std::size_t>(step)];
  return say("rank ", rank, " block ", block, " step ", found.number, " (", nameOf(found, rank), ")");
}

}  // namespace mscclpp::dsl
