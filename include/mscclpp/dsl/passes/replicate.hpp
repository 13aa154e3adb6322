// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes several instances of a program: each has blocks, channels and semaphores of its own and its share of every
// chunk, so the instances have nothing to do with each other.
//
// Chunk c of a slice of n chunks becomes, for instance i of m: grouped, chunk i * n + c; interleaved, c * m + i. A
// step of several chunks stays whole where they stay neighbours, which is in grouped instances, and is taken apart
// otherwise.
#pragma once

#include <utility>
#include <vector>

#include "mscclpp/dsl/core/spec.hpp"

namespace mscclpp::dsl {

namespace detail {

class Replicas {
 public:
  constexpr Replicas(Program const& program, int instances, Replication policy)
      : from_(program), instances_(instances), policy_(policy) {}

  constexpr Program make() {
    Program to = from_;
    auto& collective = to.collective;
    collective.chunkFactor *= instances_;
    collective.customInput *= instances_;
    collective.customOutput *= instances_;
    to.expectations.clear();
    for (auto const& wanted : from_.expectations) {
      for (int i = 0; i < instances_; ++i) {
        Expectation mine{wanted.rank, place(BufferKind::output, 0, wanted.chunk, i), {}};
        for (auto const& each : wanted.holds) {
          mine.holds.push_back({each.rank, place(BufferKind::input, 0, each.chunk, i)});
        }
        to.expectations.push_back(std::move(mine));
      }
    }
    for (std::size_t r = 0; r < to.ranks.size(); ++r) {
      auto const& old = from_.ranks[r];
      auto& rank = to.ranks[r];
      rank.blocks.clear();
      rank.channels.clear();
      rank.semaphores.clear();
      rank.scratchChunks = old.scratchChunks * instances_;
      for (int i = 0; i < instances_; ++i) {
        rank.channels.insert(rank.channels.end(), old.channels.begin(), old.channels.end());
        rank.semaphores.insert(rank.semaphores.end(), old.semaphores.begin(), old.semaphores.end());
        for (auto const& block : old.blocks) rank.blocks.push_back(instanceOf(block, old, i));
      }
    }
    return to;
  }

  constexpr bool keepsStepsWhole() const {
    for (auto const& rank : from_.ranks) {
      for (auto const& block : rank.blocks) {
        for (auto const& step : block.steps) {
          if (step.kind == StepKind::move && !staysWhole(step)) return false;
        }
      }
    }
    return true;
  }

 private:
  constexpr int place(BufferKind buffer, int rank, int chunk, int instance) const {
    int const n = buffer == BufferKind::scratch ? from_.ranks[static_cast<std::size_t>(rank)].scratchChunks
                                                : from_.perSlice(buffer);
    int const slice = chunk / n, c = chunk % n;
    return slice * n * instances_ + (policy_ == Replication::grouped ? instance * n + c : c * instances_ + instance);
  }
  constexpr Chunks moved(Chunks chunks, int instance) const {
    chunks.index = place(chunks.buffer, chunks.rank, chunks.index, instance);
    return chunks;
  }
  // Whether the chunks of the step stay neighbours.
  constexpr bool staysWhole(Step const& step) const {
    if (policy_ != Replication::grouped) return step.sources[0].count == 1;
    for (auto const* operands : {&step.sources, &step.targets}) {
      for (auto const& chunks : *operands) {
        if (chunks.buffer == BufferKind::scratch) continue;
        int const n = from_.perSlice(chunks.buffer);
        if (chunks.index / n != (chunks.index + chunks.count - 1) / n) return false;
      }
    }
    return true;
  }

  constexpr Block instanceOf(Block const& block, RankProgram const& rank, int instance) const {
    Block made;
    made.steps.reserve(block.steps.size());
    for (auto const& step : block.steps) {
      auto copy = step;
      for (auto& id : copy.objects) {
        if (copy.kind == StepKind::barrier) {
          id = barrierId(rank, id, instance);
        } else {
          bool const semaphore = copy.kind == StepKind::acquire || copy.kind == StepKind::release;
          id += instance * static_cast<int>(semaphore ? rank.semaphores.size() : rank.channels.size());
        }
      }
      if (step.kind != StepKind::move || staysWhole(step)) {
        for (auto* operands : {&copy.sources, &copy.targets}) {
          for (auto& chunks : *operands) chunks = moved(chunks, instance);
        }
        made.steps.push_back(std::move(copy));
        continue;
      }
      for (int i = 0; i < step.sources[0].count; ++i) {
        auto piece = copy;
        for (auto* operands : {&piece.sources, &piece.targets}) {
          for (auto& chunks : *operands) {
            chunks.index += i;
            chunks.count = 1;
            chunks = moved(chunks, instance);
          }
        }
        made.steps.push_back(std::move(piece));
      }
    }
    return made;
  }

  // Barriers are numbered as they come, so the rank's largest number says how many there are.
  constexpr int barrierId(RankProgram const& rank, int id, int instance) const {
    int most = 0;
    for (auto const& block : rank.blocks) {
      for (auto const& step : block.steps) {
        if (step.kind == StepKind::barrier && step.objects[0] >= most) most = step.objects[0] + 1;
      }
    }
    return id + instance * most;
  }

  Program const& from_;
  int instances_;
  Replication policy_;
};

}  // namespace detail

// Whether replicate() takes no step apart.
constexpr bool keepsStepsWhole(Program const& program, int instances, Replication policy) {
  return detail::Replicas(program, instances, policy).keepsStepsWhole();
}

constexpr Program replicate(Program const& program, int instances, Replication policy) {
  return detail::Replicas(program, instances, policy).make();
}

}  // namespace mscclpp::dsl
