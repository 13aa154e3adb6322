// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library's own messages over a user's Bootstrap: tags below zero, which user messages cannot have.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

class BootstrapAccess {
 public:
  enum Tag : int { gather = -2, barrierTag = -3, group = -4, team = -5, memory = -6, endpoint = -7, ballot = -8 };

  static void send(Bootstrap& bootstrap, std::vector<std::byte> const& message, int peer, int tag) {
    bootstrap.sendMessage(message.data(), message.size(), peer, tag);
  }
  static std::vector<std::byte> recv(Bootstrap& bootstrap, int peer, int tag) {
    return bootstrap.recvMessage(peer, tag);
  }
  static void sendTo(Bootstrap& bootstrap, MessageAddress const& to, MessageWait const& wait, void const* data,
                     std::size_t bytes) {
    bootstrap.sendTo(to, wait, data, bytes);
  }
  static std::vector<std::byte> recvFrom(Bootstrap& bootstrap, MessageAddress const& from, MessageWait const& wait) {
    return bootstrap.recvFrom(from, wait);
  }
  using Died = Bootstrap::Died;
  static std::shared_ptr<void> listen(Bootstrap& bootstrap, Died died) { return bootstrap.listen(std::move(died)); }
  static void declareLost(Bootstrap& bootstrap, std::string const& reason) { bootstrap.declareLost(reason); }
  static void checkTag(Bootstrap const& bootstrap, std::string_view operation, int peer, int tag) {
    bootstrap.checkTag(operation, peer, tag);
  }
  // A tag space of its own beside the user's tags: what Communicator exchanges never meets the user's messages.
  static int beside(int userTag, Tag purpose) { return static_cast<int>(purpose) - 64 * (userTag + 1); }
};

}  // namespace mscclpp
