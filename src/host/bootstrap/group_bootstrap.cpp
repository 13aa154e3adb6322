// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/group_bootstrap.hpp"

#include <algorithm>
#include <utility>

#include "host/bootstrap/bootstrap_access.hpp"

namespace mscclpp {

GroupBootstrap::GroupBootstrap(std::shared_ptr<Bootstrap> parent, std::vector<int> ranks, int perNode,
                               std::uint64_t context)
    : parent_(std::move(parent)), ranks_(std::move(ranks)), perNode_(perNode), context_(context) {
  place_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), parent_->getRank()) - ranks_.begin());
}

MessageAddress GroupBootstrap::inParent(MessageAddress const& address) const {
  return {address.context == 0 ? context_ : address.context, inParent(address.peer), address.tag};
}

MessageWait GroupBootstrap::inParent(MessageWait const& wait) const {
  MessageWait there{wait.limit, {}, wait.collective};
  for (int const member : wait.members) there.members.push_back(inParent(member));
  return there;
}

void GroupBootstrap::sendTo(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes) {
  BootstrapAccess::sendTo(*parent_, inParent(to), inParent(wait), data, bytes);
}

std::vector<std::byte> GroupBootstrap::recvFrom(MessageAddress const& from, MessageWait const& wait) {
  return BootstrapAccess::recvFrom(*parent_, inParent(from), inParent(wait));
}

std::shared_ptr<void> GroupBootstrap::listen(Died died) {
  return BootstrapAccess::listen(*parent_, [ranks = ranks_, died = std::move(died)](int rank, std::string const& why) {
    auto const place = std::find(ranks.begin(), ranks.end(), rank);
    if (place != ranks.end()) died(static_cast<int>(place - ranks.begin()), why);
  });
}

void GroupBootstrap::declareLost(std::string const& reason) { BootstrapAccess::declareLost(*parent_, reason); }

void GroupBootstrap::sendMessage(void const* data, std::size_t bytes, int peer, int tag) {
  BootstrapAccess::sendTo(*parent_, inParent(MessageAddress{0, peer, tag}), {timeout(), ranks_, false}, data, bytes);
}

std::vector<std::byte> GroupBootstrap::recvMessage(int peer, int tag) {
  return BootstrapAccess::recvFrom(*parent_, inParent(MessageAddress{0, peer, tag}), {timeout(), ranks_, false});
}

}  // namespace mscclpp
