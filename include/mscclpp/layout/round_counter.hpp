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

// Rounds after which packets have the same flags again (packetFlag()).
inline constexpr std::uint64_t flagPeriod = std::uint64_t{1} << 31;

// How often what old packets have left is cleared, see device/packet_sweep.hpp.
inline constexpr std::uint64_t sweepPeriod = flagPeriod / 8;

// Whether a round is one to clear in: one for each half of a workspace. It is told by its flag alone, so that no more
// has to be kept until its end. The first of eight is left out, in which there is nothing old in a new workspace.
MSCCLPP_HOST_DEVICE constexpr bool sweepsPackets(std::uint64_t round) {
  auto const inFlag = static_cast<std::uint32_t>(round % flagPeriod);
  return inFlag % sweepPeriod < 2 && inFlag >= sweepPeriod;
}
// Whether one of the rounds `first` to `last` is.
MSCCLPP_HOST_DEVICE constexpr bool sweepsPackets(std::uint64_t first, std::uint64_t last) {
  auto const latest = last / sweepPeriod * sweepPeriod;
  return latest + 1 >= first && sweepsPackets(latest);
}

// Counters of one rank, as mapped here.
struct RoundCounters {
  RoundCounter* first;  // null: none
  std::uint32_t count;
  std::uint32_t place;
};

}  // namespace mscclpp::layout
