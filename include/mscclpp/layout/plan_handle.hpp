// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A lowered program as kernels receive it: its steps with everything resolved but the rank, and one rank's context.
//
// The context's memory holds signal counters, epochs and barriers, which only grow or come back to where they were, so
// a captured graph may be replayed at any time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/layout/channel_handle.hpp"
#include "mscclpp/layout/port_handle.hpp"
#include "mscclpp/layout/round_counter.hpp"
#include "mscclpp/layout/watch.hpp"

namespace mscclpp::layout {

// A number that follows from the rank and from the instance of the program that the block belongs to, so that ranks
// and instances that do the same share their code.
struct RankNumber {
  // How it follows from the rank.
  enum class Rule : std::uint8_t {
    fixed,   // base
    rotate,  // base + unit * ((rank + offset) % ranks)
    others,  // base + unit * (the offset-th of the other ranks, in order)
  };
  Rule rule;
  std::int16_t unit;
  std::int16_t offset;
  std::int16_t perInstance;
  std::int32_t base;  // of the first instance

  MSCCLPP_HOST_DEVICE constexpr std::int32_t at(int rank, int ranks, int instance = 0) const {
    auto const first = base + perInstance * instance;
    switch (rule) {
      case Rule::rotate:
        // Without a remainder where there is none, so that the compiler knows this rank's own number for what it is.
        if (offset == 0) return first + unit * rank;
        return first + unit * static_cast<int>(static_cast<unsigned>(rank + offset) % static_cast<unsigned>(ranks));
      case Rule::others:
        return first + unit * (offset < rank ? offset : offset + 1);
      default:
        return first;
    }
  }
  friend constexpr bool operator==(RankNumber const&, RankNumber const&) = default;
};

// Chunks that a step reads or writes, PlanStep::chunks of them, under the one name of their memory
// (Program::canonical).
struct PlanOperand {
  RankNumber rank;
  RankNumber index;     // of its first chunk
  std::uint8_t buffer;  // dsl::BufferKind
  bool packets;
};

// A dsl::Step as kernels have it. Its operands are `sources` and then `targets` from `firstOperand` on; comments name
// the kinds of step that a member is for.
struct PlanStep {
  std::uint8_t kind;  // dsl::StepKind
  std::uint8_t link;  // dsl::ChannelKind: a port's step is its proxy's to do
  std::uint8_t reduce;
  std::uint8_t everybody;    // a switch's move: 1 its sources, 2 its targets are the same chunks of all ranks
  bool concludes;            // a reduction whose result holds every rank's contribution
  std::uint8_t ahead;        // move: moves of the block since its threads met, see dsl/detail/run/step_threads.hpp
  std::uint8_t chunksAhead;  // move: and their chunks
  std::int32_t chunks;       // move
  std::int32_t part, parts;  // move
  std::int32_t firstOperand, sources, targets;
  std::int32_t firstObject, objects;  // channels, semaphores, or the barrier; a port's move: its channel
  std::int32_t blocks;                // barrier
  std::int32_t loopEnd;               // loopBegin: the step that ends it
  std::int32_t loopChunks;
  std::uint64_t unitBytes;

  friend constexpr bool operator==(PlanStep const&, PlanStep const&) = default;
};

// The steps of one block of one rank.
struct PlanBlock {
  std::int32_t firstStep;
  std::int32_t steps;
};

// In place of the number of memory that the proxies have not been told of.
inline constexpr std::uint32_t noPortMemory = 0x7fffffff;

// What all ranks have in common.
struct PlanShape {
  std::int32_t ranks;
  std::uint32_t blocks;  // of the largest rank's grid
  std::int32_t inputSlices, inputPerSlice;
  std::int32_t outputSlices, outputPerSlice;
  std::int32_t longestOf;  // chunks of a message where they are longest
  std::uint32_t doubleScratch;
  std::uint32_t needsEvenChunks;
  std::uint32_t relaysPackets;  // some packets are taken by who does not know how long their chunk is
};

struct PlanHandle {
  std::int32_t rank;
  PlanShape shape;
  Watch* watch;
  RoundCounter* calls;                 // by block
  SemaphoreHandle const* channels;     // of memory channels, by channel
  BasePortChannelHandle const* ports;  // of port channels, by channel; null where the program has none
  SemaphoreHandle const* semaphores;   // between blocks of this rank
  std::uint32_t* barriers;             // two words each
  std::uint32_t scratchStride;         // units of 16 bytes of one chunk's place
  std::uint32_t scratchHalf;           // the same of one half
  std::uint64_t maxBytes;              // that a message may have
  std::byte* scratchMulticast;         // everybody's scratch, for multicast accesses; may be null
  std::uint64_t scratchStart;          // where scratch begins in what the ranks share
  std::uint32_t portMemories[3];       // by dsl::BufferKind: the proxies' number of rank 0's; the others' follow
  // The table, where the program is not compiled in: this rank's.
  PlanBlock const* table;
  PlanStep const* steps;
  PlanOperand const* operands;
  std::int32_t const* objects;
  std::byte* scratch[maxTeamSize];  // by rank
};

}  // namespace mscclpp::layout
