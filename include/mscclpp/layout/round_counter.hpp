// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many rounds of a team, program or ring of messages a rank has done, in its device's memory.
//
// Once any rank gives up a wait, ranks may have counted differently, and one could take the data of another round for
// its own. So giving up sets `astray` of all counters, on all ranks that are mapped (Watch::counters): kernels that
// find it refuse to go on. Both words come in one load.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"

namespace mscclpp::layout {

struct alignas(16) RoundCounter {
  std::uint64_t rounds;  // written by kernels of its rank
  std::uint64_t astray;  // 0, or strayRounds() of its rank
};

// What rank `place` of those that count together adds to the rounds that it makes flags of packets from, so that they
// are none that another rank sends or waits for.
MSCCLPP_HOST_DEVICE constexpr std::uint64_t strayRounds(std::uint32_t place) {
  constexpr std::uint64_t far = std::uint64_t{1} << 29;
  constexpr std::uint64_t apart = far / (2 * maxTeamSize);
  return far + place * apart;
}

// Counters of one rank, as mapped here.
struct RoundCounters {
  RoundCounter* first;  // null: none
  std::uint32_t count;
  std::uint32_t place;
};

}  // namespace mscclpp::layout
