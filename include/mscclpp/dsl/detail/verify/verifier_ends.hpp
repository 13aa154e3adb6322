// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the verifier for where calls end: the callers between their calls, results, and dead-locks. Part of
// verifier.hpp, which includes it.
#pragma once

#include "mscclpp/dsl/detail/verify/verifier.hpp"

namespace mscclpp::dsl::detail {

// ---- the callers ----------------------------------------------------------------------------------------------------

// Fresh input, and an output that holds nothing of worth.
constexpr void Verifier::callerWrites(int rank) {
  auto& state = ranks_[at(rank)];
  int call = 0;
  for (auto const& block : blocks_) {
    if (block.rank == rank) call = block.call;
  }
  Stamp const stamp{state.caller, state.phase, 0, 0, -1, call, rank, -1, 0};
  for (auto const buffer : {BufferKind::output, BufferKind::input}) {
    for (int chunk = 0; chunk < program_.chunks(rank, buffer); ++chunk) {
      auto const place = program_.canonical({rank, buffer, chunk});
      for (int part = 0; part < memory_.parts(); ++part) {
        auto& piece = memory_.piece(rank, place.buffer, place.index, part, call);
        piece.written = stamp;
        piece.reads.clear();
        piece.value = buffer == BufferKind::input ? memory_.inputValue(rank, chunk) : nothing;
        piece.packets = false;
      }
    }
  }
  state.knows.completePhases(state.caller, ++state.phase);
}

constexpr void Verifier::endCall(int rank) {
  auto& state = ranks_[at(rank)];
  int call = 0;
  for (auto const& block : blocks_) {
    if (block.rank != rank) continue;
    if (!block.ended) return;
    call = block.call;
  }
  for (auto const& block : blocks_) {
    if (block.rank == rank) state.knows.join(block.control);
  }
  checkOutput(rank, call);
  if (!diagnostic_.empty()) return;
  for (auto& block : blocks_) {
    if (block.rank == rank) ++block.call;
  }
  callerWrites(rank);
  for (auto& block : blocks_) {
    if (block.rank == rank) begin(block);
  }
}

// Everybody who touched the caller's buffers is known to have done so, and the output is what was demanded.
constexpr void Verifier::checkOutput(int rank, int call) {
  auto const& state = ranks_[at(rank)];
  Stamp const stamp{state.caller, state.phase, 0, 0, -1, call, rank, -1, 0};
  for (auto const buffer : {BufferKind::output, BufferKind::input}) {
    for (int chunk = 0; chunk < program_.chunks(rank, buffer); ++chunk) {
      Chunks const said{rank, buffer, chunk};
      auto const place = program_.canonical(said);
      for (int part = 0; part < memory_.parts(); ++part) {
        auto const& piece = memory_.piece(rank, place.buffer, place.index, part, call);
        if (!isHandedOver(piece.written, state.knows, stamp)) {
          diagnostic_ =
              raceDiagnostic(program_, piece.written, true, stamp, false, said, state.knows.knowsOrder(piece.written));
          return;
        }
        for (auto const& read : piece.reads) {
          if (state.knows.knowsOrder(read)) continue;
          if (state.knows.knowsCause(read)) {
            reliesOnPackets_ = true;
            continue;
          }
          diagnostic_ = raceDiagnostic(program_, read, false, stamp, true, said, false);
          return;
        }
        if (buffer == BufferKind::input) continue;
        auto const wanted = demanded(program_, rank, chunk);
        if (wanted.empty()) continue;
        std::vector<Contribution> const none;
        auto const& got = piece.value == nothing ? none : memory_.value(piece.value).holds;
        if (isSame(got, wanted)) continue;
        diagnostic_ = wrongResult(program_, said, got, wanted);
        return;
      }
    }
  }
}

// ---- dead-locks -----------------------------------------------------------------------------------------------------

// The block that this one waits for; -1: nobody who could still act. One that has ended its call has no step left.
constexpr int Verifier::awaitedBlock(BlockState const& block) const {
  auto const& step = of(block.rank).blocks[at(block.block)].steps[block.step];
  auto const& rank = ranks_[at(block.rank)];
  for (int other = 0; other < static_cast<int>(blocks_.size()); ++other) {
    auto const& theirs = blocks_[at(other)];
    auto const& steps = of(theirs.rank).blocks[at(theirs.block)].steps;
    for (auto s = theirs.step; s < steps.size(); ++s) {
      auto const& candidate = steps[s];
      if (step.kind == StepKind::wait && candidate.kind == StepKind::signal) {
        for (int const id : step.objects) {
          auto const& queue = rank.queues[at(id)];
          if (queue.taken != queue.waiting.size() || of(block.rank).channels[at(id)].peer != theirs.rank) continue;
          for (int const their : candidate.objects) {
            if (their == rank.pairs[at(id)]) return other;
          }
        }
      }
      if (step.kind == StepKind::acquire && candidate.kind == StepKind::release && theirs.rank == block.rank) {
        for (int const id : candidate.objects) {
          for (int const wanted : step.objects) {
            if (id == wanted) return other;
          }
        }
      }
      if (step.kind == StepKind::barrier && candidate.kind == StepKind::barrier && theirs.rank == block.rank &&
          theirs.round < 0 && candidate.objects[0] == step.objects[0]) {
        return other;
      }
      if (step.kind == StepKind::move && candidate.kind == StepKind::move) {
        for (auto const& source : step.sources) {
          if (!source.packets) continue;
          for (auto const& target : candidate.targets) {
            if (target.packets && target.rank == source.rank && target.index < source.index + source.count &&
                source.index < target.index + target.count) {
              return other;
            }
          }
        }
      }
    }
  }
  return -1;
}

constexpr Text Verifier::waitOf(BlockState const& block) const {
  auto const& step = of(block.rank).blocks[at(block.block)].steps[block.step];
  auto text = describe(program_, block.rank, block.block, static_cast<int>(block.step));
  switch (step.kind) {
    case StepKind::wait:
      for (int const id : step.objects) {
        auto const& queue = ranks_[at(block.rank)].queues[at(id)];
        if (queue.taken == queue.waiting.size()) {
          return text.add(" waits for a signal of rank ")
              .add(of(block.rank).channels[at(id)].peer)
              .add(" over channel ")
              .add(id);
        }
      }
      return text;
    case StepKind::acquire:
      return text.add(" waits for a release of semaphore ").add(step.objects[0]);
    case StepKind::barrier:
      return text.add(" waits for the other blocks of barrier ").add(step.objects[0]);
    default:
      for (auto const& source : step.sources) {
        if (source.packets) return text.add(" waits for ").add(describe(source));
      }
      return text;
  }
}

// Packets that this block waits for and that a later call has overwritten.
constexpr Text Verifier::overwritten(BlockState const& block) {
  auto const& step = of(block.rank).blocks[at(block.block)].steps[block.step];
  if (step.kind != StepKind::move) return {};
  Text sentence;
  forEachAwaited(block, step, [&](Chunks const& source, Piece const& piece) {
    if (!piece.packets || piece.written.call <= block.call || !sentence.empty()) return;
    sentence = say(who(program_, piece.written), " writes ", describe(source), " of its next call before ",
                   describe(program_, block.rank, block.block, static_cast<int>(block.step)),
                   " has read those of this one: let its call wait for an answer, or use doubleScratch");
  });
  return sentence;
}

constexpr Text Verifier::deadLock() {
  for (auto const& block : blocks_) {
    if (block.ended) continue;
    if (auto text = overwritten(block); !text.empty()) return text;
  }
  // Follows who waits for whom, from each block, until nobody can help or a block comes again.
  Text shortest;
  int least = 0;
  for (int first = 0; first < static_cast<int>(blocks_.size()); ++first) {
    if (blocks_[at(first)].ended) continue;
    std::vector<int> chain{first};
    Text end;
    while (end.empty()) {
      int const next = awaitedBlock(blocks_[at(chain.back())]);
      if (next < 0) {
        end = say(", which never comes");
      } else if (next == first) {
        end = say(": none of them can go on");
      } else {
        bool again = false;
        for (int const seen : chain) again |= seen == next;
        if (again) break;
        chain.push_back(next);
      }
    }
    if (end.empty() || (least != 0 && static_cast<int>(chain.size()) >= least)) continue;
    least = static_cast<int>(chain.size());
    shortest = say("dead-lock: ");
    for (std::size_t i = 0; i < chain.size(); ++i) {
      if (i != 0) shortest.add("; ");
      shortest.add(waitOf(blocks_[at(chain[i])]));
    }
    shortest.add(end);
  }
  return shortest;
}

}  // namespace mscclpp::dsl::detail
