// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/mailbox.hpp"

#include <algorithm>

#include "base/deadline.hpp"
#include "base/format.hpp"
#include "mscclpp/host/wait.hpp"

namespace mscclpp {

void Mailbox::push(int peer, int tag, std::vector<std::byte> message) {
  auto order = hostRelease();
  {
    std::lock_guard const lock(mutex_);
    messages_[{peer, tag}].push_back({std::move(message), std::move(order)});
  }
  changed_.notify_all();
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): moved from, where it is the first.
void Mailbox::markLost(int peer, std::string reason) {
  {
    std::lock_guard const lock(mutex_);
    lost_.try_emplace(peer, std::move(reason));
  }
  changed_.notify_all();
}

std::optional<std::string> Mailbox::lost(int peer) const {
  std::lock_guard const lock(mutex_);
  auto const found = lost_.find(peer);
  if (found == lost_.end()) return {};
  return found->second;
}

std::optional<Mailbox::Message> Mailbox::takeLocked(int peer, int tag) {
  auto const found = messages_.find({peer, tag});
  if (found == messages_.end()) return {};
  Message message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) messages_.erase(found);
  return message;
}

std::vector<std::byte> Mailbox::take(int rank, int peer, int tag, std::chrono::nanoseconds limit) {
  std::optional<Message> message;
  std::optional<std::string> gone;
  auto const look = [&] {
    message = takeLocked(peer, tag);
    if (message) return true;
    if (auto const found = lost_.find(peer); found != lost_.end()) gone = found->second;
    return gone.has_value();
  };
  bool done = false;
  if (threadHostWait() != nullptr) {
    done = hostWait(
        [&] {
          std::lock_guard const lock(mutex_);
          return look();
        },
        limit);
  } else {
    Deadline const deadline(limit);
    std::unique_lock lock(mutex_);
    while (!(done = look()) && !deadline.expired()) {
      // In slices, so that a limit of years does not overflow the clock's end.
      changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::hours(1)));
    }
  }
  if (message) {
    hostAcquire(message->order);
    return std::move(message->data);
  }
  auto const what = tag >= 0 ? fmt::format("a message with tag {}", tag) : std::string("its part of a collective call");
  if (done) {
    fail(ErrorCode::remoteError, "rank {}: waited for {} of rank {}, but rank {} is gone ({}); see that rank's output",
         rank, what, peer, peer, *gone);
  }
  fail(
      ErrorCode::timeout,
      "rank {}: waited {} for {} of rank {}, which did not come; does rank {} run, and make the same calls in the same "
      "order? MSCCLPP_TIMEOUT sets the limit",
      rank, describe(limit), what, peer, peer);
}

}  // namespace mscclpp
