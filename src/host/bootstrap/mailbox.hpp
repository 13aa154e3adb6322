// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The messages that have arrived at one rank and wait to be received, by peer and tag. Filled by senders (threads of
// the same process) or by the thread that reads the sockets.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mscclpp {

class Mailbox {
 public:
  void push(int peer, int tag, std::vector<std::byte> message);
  // Nothing more will come from `peer`. What has arrived stays receivable. The first reason is kept.
  void markLost(int peer, std::string reason);
  std::optional<std::string> lost(int peer) const;
  // Waits. Throws timeout, or remoteError where the peer is lost; `rank` is the mailbox's owner, for the text.
  std::vector<std::byte> take(int rank, int peer, int tag, std::chrono::nanoseconds limit);

 private:
  struct Message {
    std::vector<std::byte> data;
    std::shared_ptr<void const> order;  // of the sender, see hostRelease()
  };

  std::optional<Message> takeLocked(int peer, int tag);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Message>> messages_;
  std::map<int, std::string> lost_;
};

}  // namespace mscclpp
