// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the ranks that are left agree on who they are, and go on.
#include <algorithm>
#include <cstring>
#include <set>

#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "host/bootstrap/group_bootstrap.hpp"
#include "host/core/communicator_impl.hpp"
#include "host/net/socket.hpp"
#include "mscclpp/host/log.hpp"

namespace mscclpp {
namespace {

// What a rank tells the others in each round: who is there, as far as it knows.
struct Ballot {
  std::uint64_t attempt;
  std::uint64_t round;
};

std::vector<std::byte> pack(Ballot const& ballot, std::vector<bool> const& alive) {
  auto const head = bytesOf(ballot);
  std::vector<std::byte> message(head.begin(), head.end());
  for (bool const is : alive) message.push_back(std::byte{is});
  return message;
}

std::uint64_t hashOf(std::vector<int> const& ranks) {
  std::uint64_t hash = 14695981039346656037ull;
  for (int rank : ranks) hash = (hash ^ static_cast<std::uint64_t>(rank + 1)) * 1099511628211ull;
  return hash;
}

}  // namespace

std::vector<int> Communicator::survivors() const {
  auto& bootstrap = *impl_->bootstrap;
  auto const ranks = static_cast<std::size_t>(size());
  auto const attempt = ++impl_->agreements;
  std::vector<bool> alive(ranks, true);
  auto const others = [&](auto&& act) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !alive[static_cast<std::size_t>(peer)]) continue;
      try {
        act(peer);
      } catch (Error const& error) {
        log(LogLevel::info, "rank {}: goes on without rank {}: {}", rank(), peer, error.what());
        alive[static_cast<std::size_t>(peer)] = false;
      }
    }
  };
  // Each round but the last loses a rank.
  for (std::uint64_t round = 0; round <= ranks; ++round) {
    auto const view = alive;
    auto const ballot = pack({attempt, round}, view);
    others([&](int peer) { BootstrapAccess::send(bootstrap, ballot, peer, BootstrapAccess::ballot); });
    auto agreed = alive;
    bool same = true;
    others([&](int peer) {
      std::vector<std::byte> theirs;
      Ballot head{};
      do {  // those of an attempt that was broken off are passed over
        theirs = BootstrapAccess::recv(bootstrap, peer, BootstrapAccess::ballot);
        if (theirs.size() != ballot.size()) {
          fail(ErrorCode::remoteError, "its ballot has {} bytes, not {}", theirs.size(), ballot.size());
        }
        std::memcpy(&head, theirs.data(), sizeof head);
      } while (head.attempt < attempt);
      for (std::size_t i = 0; i < ranks; ++i) {
        bool const is = theirs[sizeof head + i] != std::byte{0};
        same = same && is == view[i];
        agreed[i] = agreed[i] && is;
      }
    });
    for (std::size_t i = 0; i < ranks; ++i) alive[i] = alive[i] && agreed[i];
    if (!alive[static_cast<std::size_t>(rank())]) {
      fail(ErrorCode::remoteError, "rank {}: others have given this rank up; it cannot go on with them", rank());
    }
    if (same && alive == view) break;
  }
  std::vector<int> result;
  for (int peer = 0; peer < size(); ++peer) {
    if (alive[static_cast<std::size_t>(peer)]) result.push_back(peer);
  }
  return result;
}

std::unique_ptr<Communicator> Communicator::shrink(std::vector<int> const& ranks) const {
  if (ranks.empty() || std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size() ||
      std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) {
    fail(ErrorCode::invalidUsage, "rank {}: shrink to {}: name each rank that goes on once, this one among them",
         rank(), fmt::format("{}", ranks));
  }
  int perNode = 0;
  for (int const member : ranks) {
    impl_->checkPeer("shrink", member);
    if (impl_->sameHost(member)) ++perNode;
  }
  Key128 key{};
  auto const parts = std::array{++impl_->groups, hashOf(ranks)};
  static_assert(sizeof parts == sizeof key);
  std::memcpy(&key, parts.data(), sizeof key);
  return std::make_unique<Communicator>(std::make_shared<GroupBootstrap>(impl_->bootstrap, ranks, perNode, key),
                                        impl_->device);
}

}  // namespace mscclpp
