// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the rounds of a team rely on is looked at by the simulated machine. Twin of arch/cuda/team_rules.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/sim/backend/team_rules.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

// False where another kernel uses the team with these counters.
MSCCLPP_DEVICE bool mayUse(void const* counters) { return sim::beginUse(counters); }

// What one thread hears in a round; `counters` are the team's.
class HeardPeers {
 public:
  MSCCLPP_DEVICE HeardPeers(void const* counters, unsigned block) : where_{counters, block} {}
  ~HeardPeers() { end(); }
  HeardPeers(HeardPeers const&) = delete;
  HeardPeers& operator=(HeardPeers const&) = delete;

  // A peer of which the block has heard nothing in the round before, or -1.
  MSCCLPP_DEVICE int begin(std::uint64_t round, int rank, int ranks) {
    return sim::beginHearing(where_, round, rank, ranks);
  }
  MSCCLPP_DEVICE void add(int peer) { heard_.set(static_cast<std::size_t>(peer)); }
  // Ahead of the barrier that ends a round.
  MSCCLPP_DEVICE void end() {
    if (heard_.any()) sim::addHeard(where_, heard_);
    heard_.reset();
  }

 private:
  sim::TeamBlock where_;
  sim::PeerSet heard_;
};

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
