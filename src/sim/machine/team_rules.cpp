// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/backend/team_rules.hpp"

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "sim/machine/kernel.hpp"
#include "sim/machine/team_rules.hpp"

namespace mscclpp::sim {
namespace {

struct Hearing {
  std::uint64_t round = 0;
  PeerSet heard;
  int missing = -1;  // in the round before
};

// Machines may run on several threads.
struct Rounds {
  std::mutex mutex;
  std::map<TeamBlock, Hearing> hearings;
  std::map<void const*, std::shared_ptr<std::atomic<bool> const>> users;  // whether the latest runs, by team

  static Rounds& instance() {
    static auto* const rounds = new Rounds;  // used by objects that are destroyed late
    return *rounds;
  }
};

}  // namespace

void forgetTeams(void const* memory, std::size_t bytes) {
  auto& rounds = Rounds::instance();
  std::lock_guard const lock(rounds.mutex);
  auto const* const end = static_cast<std::byte const*>(memory) + bytes;
  rounds.hearings.erase(rounds.hearings.lower_bound({memory, 0}), rounds.hearings.lower_bound({end, 0}));
  rounds.users.erase(rounds.users.lower_bound(memory), rounds.users.lower_bound(end));
}

bool beginUse(void const* team) {
  auto const& kernel = currentGpuThread("a round of a team").block->kernel();
  auto& rounds = Rounds::instance();
  std::lock_guard const lock(rounds.mutex);
  auto& user = rounds.users[team];
  auto const own = kernel.running();
  if (user != nullptr && user != own && *user) return false;
  user = own;
  return true;
}

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
  // Rounds of kernels without this block lie between others.
  if (hearing.round + 1 == round && round > 1) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != rank && !hearing.heard[static_cast<std::size_t>(peer)]) missing = peer;
    }
  }
  hearing = {round, {}, missing};
  return missing;
}

}  // namespace mscclpp::sim
