// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A communicator of some of the ranks.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/format.hpp"
#include "base/keyed_hash.hpp"
#include "host/bootstrap/group_bootstrap.hpp"
#include "host/core/communicator_impl.hpp"

namespace mscclpp {

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
  // Counted for these ranks alone: the members have made as many of them, though not as many groups in all.
  std::uint64_t number = 0;
  {
    std::lock_guard const lock(impl_->groupsMutex);
    number = ++impl_->groups[ranks];
  }
  Key128 key{};
  auto const parts = std::array{impl_->id, number};
  static_assert(sizeof parts == sizeof key);
  std::memcpy(key.data(), parts.data(), sizeof key);
  auto const context = std::max<std::uint64_t>(keyedHash(key, std::as_bytes(std::span(ranks))), 1);
  return std::make_unique<Communicator>(std::make_shared<GroupBootstrap>(impl_->bootstrap, ranks, perNode, context),
                                        impl_->device);
}

}  // namespace mscclpp
