// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whoever accesses memory, as the checker follows it: a GPU thread, the host code of a rank, a stream's
// copies, a bulk copy of a kernel.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mscclpp/base/order.hpp"
#include "sim/memory/clock.hpp"

namespace mscclpp::sim {

// A look of a wait that has not ended yet.
struct WaitLook {
  std::uint64_t cell;    // address of the word
  std::uint64_t stamp;   // of the message that was read
  std::uint64_t oldest;  // of the oldest that could have been
  bool data = false;     // of a line, and no part of its flag
};

struct Agent {
  ThreadId id = 0;
  Epoch epoch = 1;          // advances with every release, so that others know what came before it and no more
  int device = -1;          // -1: host code
  std::uint32_t block = 0;  // number of the block among all that ever ran; 0: none
  unsigned blockIndex = 0;
  unsigned thread = 0;

  Clock known;
  std::array<Clock, 3> released;  // by scope of a fence (block, device, system): what later relaxed stores carry
  std::array<Clock, 3> pending;   // by distance of the writer: what relaxed loads have seen, for a later fence
  Clock outOfScope;               // what a wider scope would have let it know; for explanations
  // Writers whose relaxed stores it has seen, and their epochs then; for explanations.
  std::array<std::pair<ThreadId, Epoch>, 8> unreleased{};
  unsigned nextUnreleased = 0;

  Clock fenced;  // of a bulk copy: the writes that a proxy fence brings to it

  std::uint16_t calls = 0;         // node of the call tree
  std::uint32_t lostCalls = 0;     // calls since, that the full tree could not hold
  std::uint64_t staleAddress = 0;  // of the last load that returned an old value
  unsigned staleInRow = 0;
  std::uintptr_t lastRead = 0;  // by a plain access, nothing else since
  std::uint32_t readsInRow = 0;
  bool sawStale = false;  // since the scheduler was last told
  bool inWait = false;
  std::vector<WaitLook> looks;  // of the wait's latest turn
};

// How far apart two agents are: the narrowest scope that holds both.
inline Scope distance(Agent const& a, int device, std::uint32_t block) {
  if (a.device != device || a.device < 0) return Scope::system;
  return a.block == block && block != 0 ? Scope::block : Scope::device;
}

inline unsigned scopeIndex(Scope scope) { return static_cast<unsigned>(scope) - static_cast<unsigned>(Scope::block); }

}  // namespace mscclpp::sim
