// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the rounds of a team rely on (device/epoch.hpp): one kernel at a time, of which every block hears from every
// peer in every round. Called by arch/sim/team_rules.hpp only.
#pragma once

#include <bitset>
#include <compare>
#include <cstdint>

#include "mscclpp/layout/watch.hpp"

namespace mscclpp::sim {

// The running kernel uses the team with these counters. False where another one that has done so has not ended yet.
bool beginUse(void const* team);

using PeerSet = std::bitset<128>;
static_assert(PeerSet{}.size() >= 72);

// The place of a block of a team, by the address of the team's counters.
struct TeamBlock {
  void const* team;
  unsigned block;
  auto operator<=>(TeamBlock const&) const = default;
};

// A thread has heard from these in the block's present round.
void addHeard(TeamBlock const& where, PeerSet const& peers);
// The block is in that round now. Returns a rank below `ranks`, other than `rank`, that it has not heard from in the
// one before; -1 where there is none, or that round was not seen. All threads of the block get the same.
int beginHearing(TeamBlock const& where, std::uint64_t round, int rank, int ranks);

}  // namespace mscclpp::sim
