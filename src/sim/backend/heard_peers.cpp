// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/backend/heard_peers.hpp"

#include <cstddef>
#include <functional>
#include <mutex>
#include <unordered_map>

namespace mscclpp::sim {
namespace {

struct Hash {
  std::size_t operator()(TeamBlock const& where) const {
    return std::hash<void const*>()(where.team) * 31 + where.block;
  }
};

struct Hearing {
  std::uint64_t round = 0;
  PeerSet heard;
  int missing = -1;  // in the round before
};

// Machines may run on several threads.
struct Rounds {
  std::mutex mutex;
  std::unordered_map<TeamBlock, Hearing, Hash> hearings;

  static Rounds& instance() {
    static auto* const rounds = new Rounds;  // used by objects that are destroyed late
    return *rounds;
  }
};

}  // namespace

void addHeard(TeamBlock const& where, PeerSet const& peers) {
  auto& rounds = Rounds::instance();
  std::lock_guard const lock(rounds.mutex);
  rounds.hearings[where].heard |= peers;
}

int beginHearing(TeamBlock const& where, std::uint64_t round, int rank, int ranks) {
  auto& rounds = Rounds::instance();
  std::lock_guard const lock(rounds.mutex);
  auto& hearing = rounds.hearings[where];
  if (hearing.round == round) return hearing.missing;
  int missing = -1;
  // Memory of an earlier team may lie there, so only the very next round tells anything, and the first does not.
  if (hearing.round + 1 == round && round > 1) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank && !hearing.heard[static_cast<std::size_t>(peer)]) missing = peer;
    }
  }
  hearing = {round, {}, missing};
  return missing;
}

}  // namespace mscclpp::sim
