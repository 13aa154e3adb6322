// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/group_bootstrap.hpp"

#include <algorithm>
#include <utility>

#include "host/bootstrap/bootstrap_access.hpp"
#include "host/net/socket.hpp"

namespace mscclpp {

GroupBootstrap::GroupBootstrap(std::shared_ptr<Bootstrap> parent, std::vector<int> ranks, int perNode,
                               Key128 const& key)
    : parent_(std::move(parent)), ranks_(std::move(ranks)), perNode_(perNode), key_(key) {
  place_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), parent_->getRank()) - ranks_.begin());
}

void GroupBootstrap::sendMessage(void const* data, std::size_t bytes, int peer, int tag) {
  auto const head = bytesOf(key_);
  std::vector<std::byte> message(head.begin(), head.end());
  auto const* const first = static_cast<std::byte const*>(data);
  message.insert(message.end(), first, first + bytes);
  BootstrapAccess::send(*parent_, message, ranks_[static_cast<std::size_t>(peer)], tag);
}

std::vector<std::byte> GroupBootstrap::recvMessage(int peer, int tag) {
  auto const head = bytesOf(key_);
  for (;;) {
    auto message = BootstrapAccess::recv(*parent_, ranks_[static_cast<std::size_t>(peer)], tag);
    if (message.size() < head.size() || !std::equal(head.begin(), head.end(), message.begin())) continue;
    message.erase(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(head.size()));
    return message;
  }
}

}  // namespace mscclpp
