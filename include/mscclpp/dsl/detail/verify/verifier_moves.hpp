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
    if (access.knows->knowsData(piece.written)) return;
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
    if (packets && wasWritten && same && !newCall) {
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
      if (knows(read)) continue;
      diagnostic_ = raceDiagnostic(program_, read, false, access.stamp, true, access.said, false);
      return;
    }
    if (!wasWritten) return;
    bool const ordered = packets ? knows(piece.written)
                                 : piece.written.samePiece(access.stamp) || access.knows->knowsData(piece.written);
    if (!ordered) {
      diagnostic_ = raceDiagnostic(program_, piece.written, true, access.stamp, true, access.said,
                                   access.knows->knowsOrder(piece.written));
    }
  });
  if (!diagnostic_.empty()) return;
  checkPlace(access, value);
  auto& own = memory_.piece(access.chunk.rank, access.chunk.buffer, access.chunk.index, access.part, access.stamp.call);
  own.written = access.stamp;
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

constexpr bool Verifier::packetsReady(BlockState const& block, Step const& step) {
  bool ready = true;
  for (auto const& source : step.sources) {
    if (!source.packets) continue;
    for (int chunk = source.index; chunk < source.index + source.count; ++chunk) {
      forEachPart(block, step, [&](int part) {
        auto const& piece = memory_.piece(source.rank, source.buffer, chunk, part, block.call);
        ready = ready && piece.packets && piece.written.exists() && piece.written.call == block.call;
      });
    }
  }
  return ready;
}

constexpr bool Verifier::move(BlockState& block, Step const& step) {
  if (!packetsReady(block, step)) return false;
  int const inPhase = block.inPhase++;
  auto stamp = stampOf(block, block.actor, block.phase, inPhase);
  // What the packets that it sends tell: what all threads know, and what its own packets told, slot by slot.
  bool sends = false, receives = false;
  for (auto const& target : step.targets) sends |= target.packets;
  for (auto const& source : step.sources) receives |= source.packets;
  int known = block.all;
  if (receives) {
    known = copy(copied(block.all));
    auto& told = copies_.back();
    for (auto const& source : step.sources) {
      if (!source.packets) continue;
      // The same message told of all that one step sent.
      int last = -1;
      for (int chunk = source.index; chunk < source.index + source.count; ++chunk) {
        forEachPart(block, step, [&](int part) {
          int const message = memory_.piece(source.rank, source.buffer, chunk, part, block.call).message;
          if (message == last) return;
          last = message;
          auto const& from = messages_[at(message)];
          told.joinCause(copied(from.copy));
          if (from.actor >= 0) told.completeStep(from.actor, from.phase, from.inPhase);
        });
      }
    }
    block.arrived.joinCause(told);
  }
  int message = -1;
  if (sends) {
    message = static_cast<int>(messages_.size());
    messages_.push_back({known, stamp.actor, stamp.phase, inPhase});
  }
  auto const* const knows = &copied(known);
  std::vector<int> values;
  values.reserve(step.sources.size());
  for (int chunk = 0; chunk < step.sources[0].count; ++chunk) {
    stamp.piece = chunk;
    forEachPart(block, step, [&](int part) {
      auto const access = [&](Chunks said) {
        said.index += chunk;
        said.count = 1;
        return Access{stamp, knows, program_.canonical(said), said, part};
      };
      values.clear();
      for (auto const& source : step.sources) {
        values.push_back(read(access(source)));
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
      for (auto const& target : step.targets) {
        write(access(target), value, message);
        if (!diagnostic_.empty()) return;
      }
    });
    if (!diagnostic_.empty()) return true;
  }
  return true;
}

// The proxy does it, behind everything that was asked of its channel before.
constexpr bool Verifier::portMove(BlockState& block, Step const& step) {
  auto& port = ranks_[at(block.rank)].ports[at(step.objects[0])];
  port.knows.join(block.control);
  auto const knows = port.knows;
  auto stamp = stampOf(block, port.actor, port.phase, 0);
  for (int chunk = 0; chunk < step.sources[0].count; ++chunk) {
    stamp.piece = chunk;
    forEachPart(block, step, [&](int part) {
      auto const access = [&](Chunks said) {
        said.index += chunk;
        said.count = 1;
        return Access{stamp, &knows, program_.canonical(said), said, part};
      };
      if (!diagnostic_.empty()) return;
      auto source = access(step.sources[0]);
      int value = nothing;
      if (source.said.packets) {
        // Packets that lie there already, and are moved as they are.
        auto const& piece = memory_.piece(source.chunk.rank, source.chunk.buffer, source.chunk.index, part, block.call);
        if (!piece.written.exists() || !piece.packets || piece.written.call != block.call ||
            !knows.knowsData(piece.written)) {
          diagnostic_ = say(who(program_, stamp), " moves ", describe(source.said), ", which nothing orders before it");
          return;
        }
        value = piece.value;
      } else {
        value = read(source);
      }
      if (!diagnostic_.empty()) return;
      int message = -1;
      if (step.targets[0].packets) {
        message = static_cast<int>(messages_.size());
        messages_.push_back({.copy = copy(knows)});
      }
      write(access(step.targets[0]), value, message);
    });
  }
  port.knows.completePhases(port.actor, ++port.phase);
  return true;
}

}  // namespace mscclpp::dsl::detail
