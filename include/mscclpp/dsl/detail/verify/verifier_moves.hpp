// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the verifier that touches memory: what steps that move data read and write. Part of verifier.hpp, which
// includes it.
#pragma once

#include "mscclpp/dsl/detail/verify/verifier.hpp"

namespace mscclpp::dsl::detail {

// f(part): the pieces of a chunk that this step of this block touches.
template <class F>
constexpr void Verifier::forEachPart(BlockState const& block, Step const& step, F&& f) const {
  int const firstTurn = loops_ && block.turn >= 0 ? block.turn : 0;
  int const endTurn = !loops_ ? 1 : block.turn >= 0 ? block.turn + 1 : turns;
  for (int turn = firstTurn; turn < endTurn; ++turn) {
    int const first = step.part * groups_ / step.parts, end = (step.part + 1) * groups_ / step.parts;
    for (int part = first; part < end; ++part) f(turn * groups_ + part);
  }
}

// f(chunk, part), until something is found wrong.
template <class F>
constexpr void Verifier::forEachPiece(BlockState const& block, Step const& step, F&& f) const {
  for (int chunk = 0; chunk < step.sources[0].count; ++chunk) {
    forEachPart(block, step, [&](int part) {
      if (diagnostic_.empty()) f(chunk, part);
    });
  }
}

constexpr Verifier::Access Verifier::pieceOf(Chunks operand, Stamp const& stamp, Knowledge const& knows, int chunk,
                                             int part) const {
  operand.index += chunk;
  operand.count = 1;
  return {stamp, &knows, program_.canonical(operand), operand, part};
}

// f(piece): the pieces that may be the same memory: this one, and what an earlier call made of the whole chunk.
template <class F>
constexpr void Verifier::forEachOther(Access const& access, F&& f) {
  for (int part = 0; part < memory_.parts(); ++part) {
    auto& piece = memory_.piece(access.chunk.rank, access.chunk.buffer, access.chunk.index, part, access.stamp.call);
    bool const same = part == access.part;
    bool const wasWritten = piece.written.exists() && (same || piece.written.call != access.stamp.call);
    f(piece, wasWritten, same);
  }
}

constexpr int Verifier::read(Access const& access) {
  auto& own = memory_.piece(access.chunk.rank, access.chunk.buffer, access.chunk.index, access.part, access.stamp.call);
  if (access.said.packets) {
    own.reads.push_back(access.stamp);
    return own.value;
  }
  forEachOther(access, [&](Piece& piece, bool wasWritten, bool) {
    if (!diagnostic_.empty() || !wasWritten || piece.written.samePiece(access.stamp)) return;
    if (isHandedOver(piece.written, *access.knows, access.stamp)) return;
    diagnostic_ = raceDiagnostic(program_, piece.written, true, access.stamp, false, access.said,
                                 access.knows->knowsOrder(piece.written));
  });
  if (!diagnostic_.empty()) return nothing;
  if (own.packets) {
    diagnostic_ = say(who(program_, access.stamp), " reads ", describe(access.said), " as plain data; ",
                      who(program_, own.written), " writes packets there");
  } else if (own.value == nothing) {
    diagnostic_ = say(who(program_, access.stamp), " reads ", describe(access.said),
                      ", where nothing has been written before it");
  }
  own.reads.push_back(access.stamp);
  return own.value;
}

constexpr void Verifier::write(Access const& access, int value, int message) {
  bool const packets = access.said.packets;
  auto& own = memory_.piece(access.chunk.rank, access.chunk.buffer, access.chunk.index, access.part, access.stamp.call);
  // A switch that takes packets and writes them to everybody writes those that lie here once more: the same bits, of
  // which readers may have either.
  bool again = false;
  for (auto const& read : own.reads) again |= packets && own.value == value && read.samePiece(access.stamp);
  forEachOther(access, [&](Piece& piece, bool wasWritten, bool same) {
    if (!diagnostic_.empty()) return;
    bool const newCall = piece.written.call != access.stamp.call;
    if (wasWritten && !piece.written.byCaller() && piece.packets != packets &&
        access.chunk.buffer == BufferKind::scratch) {
      diagnostic_ =
          say(who(program_, access.stamp), " writes ", describe(access.said), ", where ", who(program_, piece.written),
              " writes ", packets ? "plain data" : "packets", ": what is left of one could pass for the other");
      return;
    }
    if (packets && wasWritten && same && !newCall && !again) {
      diagnostic_ =
          say(who(program_, access.stamp), " writes ", describe(access.said), ", which ", who(program_, piece.written),
              " writes in the same call: both packets carry the call's flag, and the reader could take either");
      return;
    }
    auto const knows = [&](Stamp const& stamp) {
      if (stamp.samePiece(access.stamp)) return true;
      if (!packets && access.knows->knowsOrder(stamp)) return true;
      bool const told = access.knows->knowsCause(stamp);
      reliesOnPackets_ |= told && !packets;
      return told;
    };
    for (auto const& read : piece.reads) {
      if (!same && read.call == access.stamp.call) continue;
      if (again && same) continue;
      if (knows(read)) continue;
      diagnostic_ = raceDiagnostic(program_, read, false, access.stamp, true, access.said, false);
      return;
    }
    if (!wasWritten) return;
    bool const ordered =
        packets ? knows(piece.written)
                : piece.written.samePiece(access.stamp) || isHandedOver(piece.written, *access.knows, access.stamp);
    if (!ordered) {
      diagnostic_ = raceDiagnostic(program_, piece.written, true, access.stamp, true, access.said,
                                   access.knows->knowsOrder(piece.written));
    }
  });
  if (!diagnostic_.empty()) return;
  checkPlace(access, value);
  own.written = access.stamp;
  if (again) return;
  own.reads.clear();
  own.value = value;
  own.packets = packets;
  own.message = message;
}

// Chunks of a message that does not divide evenly differ in length by their place in it.
constexpr void Verifier::checkPlace(Access const& access, int value) {
  if (value == nothing || access.chunk.buffer == BufferKind::scratch) return;
  int const inputs = program_.perSlice(BufferKind::input), here = program_.perSlice(access.chunk.buffer);
  needsEven_ |= inputs != here || memory_.value(value).place != access.chunk.index % here;
}

constexpr int Verifier::combine(Step const& step, std::vector<int> const& values, Stamp const& stamp) {
  if (values.size() == 1) return values[0];
  int const place = memory_.value(values[0]).place;
  for (int const id : values) {
    auto const& value = memory_.value(id);
    if (value.reduced && value.reduce != step.reduce) {
      diagnostic_ =
          say(who(program_, stamp), " reduces by ", nameOf(step.reduce), " what was reduced by ", nameOf(value.reduce));
      return nothing;
    }
    needsEven_ |= value.place != place;
  }
  return memory_.reduced(values, step.reduce);
}

// f(source, piece): the pieces whose packets this step takes.
template <class F>
constexpr void Verifier::forEachAwaited(BlockState const& block, Step const& step, F&& f) {
  for (auto const& source : step.sources) {
    if (!source.packets) continue;
    for (int chunk = source.index; chunk < source.index + source.count; ++chunk) {
      forEachPart(block, step,
                  [&](int part) { f(source, memory_.piece(source.rank, source.buffer, chunk, part, block.call)); });
    }
  }
}

constexpr bool Verifier::packetsReady(BlockState const& block, Step const& step) {
  bool ready = true;
  forEachAwaited(block, step, [&](Chunks const&, Piece const& piece) {
    ready = ready && piece.packets && piece.written.exists() && piece.written.call == block.call;
  });
  return ready;
}

// What is known of a piece once its packets have come: a copy of `known` and what the packets tell.
constexpr int Verifier::told(BlockState const& block, Step const& step, int known, int chunk, int part) {
  int made = -1;
  for (auto const& source : step.sources) {
    if (!source.packets) continue;
    auto const& message =
        messages_[at(memory_.piece(source.rank, source.buffer, source.index + chunk, part, block.call).message)];
    if (made < 0) made = copy(copied(known));
    auto& all = copies_[at(made)];
    all.joinCause(copied(message.copy));
    all.completePiece(message.actor, message.phase, message.bit);
  }
  return made < 0 ? known : made;
}

constexpr bool Verifier::move(BlockState& block, Step const& step) {
  if (!packetsReady(block, step)) return false;
  int const inPhase = block.inPhase++;
  auto stamp = stampOf(block, block.actor, block.phase, inPhase);
  bool sends = false, receives = false;
  for (auto const& target : step.targets) sends |= target.packets;
  for (auto const& source : step.sources) receives |= source.packets;
  std::vector<int> values;
  values.reserve(step.sources.size());
  forEachPiece(block, step, [&](int chunk, int part) {
    stamp.piece = chunk;
    stamp.bit = bitOf(block.pieces++);
    // What all threads know, and what the packets of this piece told, slot by slot.
    int const known = receives ? told(block, step, block.all, chunk, part) : block.all;
    if (receives) block.arrived.joinCause(copied(known));
    values.clear();
    for (auto const& source : step.sources) {
      values.push_back(read(pieceOf(source, stamp, copied(known), chunk, part)));
      if (!diagnostic_.empty()) return;
    }
    int const value = combine(step, values, stamp);
    if (!diagnostic_.empty()) return;
    if (step.sources.size() > 1 && block.call == 0) {
      bool const all = static_cast<int>(memory_.value(value).holds.size()) == program_.size();
      auto& reduces = reductions_[block.firstStep + block.step];
      auto const now = all ? Reduces::all : Reduces::part;
      reduces = reduces == Reduces::none || reduces == now ? now : Reduces::both;
    }
    int const message = static_cast<int>(messages_.size());
    if (sends) messages_.push_back({known, stamp.actor, stamp.phase, stamp.bit});
    for (auto const& target : step.targets) {
      write(pieceOf(target, stamp, copied(known), chunk, part), value, message);
      if (!diagnostic_.empty()) return;
    }
  });
  return true;
}

}  // namespace mscclpp::dsl::detail
