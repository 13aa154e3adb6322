// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The words in which memory operations are said: order, scope, and the plain multi-word values that move as one
// instruction. They mean what the PTX memory model means by them; the simulated machine follows the same rules.
#pragma once

#include <cstdint>

namespace mscclpp {

enum class Order : std::uint8_t { relaxed, acquire, release, acquireRelease, sequential };

// The threads an operation is ordered with: this thread alone, its block, its device, everybody.
enum class Scope : std::uint8_t { thread, block, device, system };

// What loadWords2() and loadWords4() move, Words2 and Words4: one access each, of which every 8 bytes arrive whole.
// They may alias whatever a buffer holds.
struct alignas(8) [[gnu::may_alias]] Words2 {
  std::uint32_t w[2];
};

struct alignas(16) [[gnu::may_alias]] Words4 {
  std::uint32_t w[4];
};

}  // namespace mscclpp
