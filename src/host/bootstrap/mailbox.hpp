// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The messages that have arrived at one rank and wait to be received, by context, peer and tag, and what is known of
// ranks that have gone. Filled by senders (threads of the same process) or by the thread that reads the sockets.
//
// A wait ends where its peer has gone. Where somebody could not complete a call because of some rank, all waits among
// ranks that it belongs to end, too, and name it: not the healthy one that they happen to wait for. So do waits for
// collectives, and for what else the library sends by itself, where a rank has died without a word some time ago.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

// What ranks tell each other of a rank.
struct RankNews {
  enum class Kind : std::int32_t {
    left,    // it has ended its bootstrap
    died,    // its connection ended without a word
    failed,  // somebody needed it in vain
  };
  int rank = -1;
  Kind kind = Kind::left;
  int cause = -1;      // of left: the rank that this one had needed in vain, if any
  std::string reason;  // for people
};

class Mailbox {
 public:
  // `spread` is called where a wait has ended in vain and the other ranks should know, with no lock held.
  using Spread = std::function<void(RankNews const& news)>;
  Mailbox(int rank, Spread spread) : rank_(rank), spread_(std::move(spread)) {}

  void push(MessageAddress const& from, std::vector<std::byte> message);
  // All that came from `peer`, in every context.
  void forget(int peer);

  // False where it was known. A rank leaves or dies once.
  bool tell(RankNews const& news);
  // Nothing more will come from the rank of `news`, left or died. What has arrived stays receivable.
  void lose(RankNews const& news);
  // The same, where it is known that the rank has left or died.
  void loseEnded(int rank);
  // Throws remoteError, beginning with `what`, where the rank that a message shall go to is lost.
  void requirePresent(MessageAddress const& to, MessageWait const& wait, std::string const& what);
  // The rank that this one has first needed in vain; -1: none.
  int blamed() const;

  // Waits. Throws timeout, or remoteError naming the rank that is to blame.
  std::vector<std::byte> take(MessageAddress const& from, MessageWait const& wait);
  std::optional<std::vector<std::byte>> tryTake(MessageAddress const& from);

 private:
  struct Message {
    std::vector<std::byte> data;
    std::shared_ptr<void const> order;  // of the sender, see hostRelease()
  };
  struct Event {
    RankNews news;
    std::chrono::steady_clock::time_point time;
  };

  std::optional<Message> takeLocked(MessageAddress const& from);
  // Who is to blame where `peer` is lost; where a wait can no longer end well.
  RankNews const* blameForLoss(int peer, MessageWait const& wait) const;
  RankNews const* blame(MessageAddress const& from, MessageWait const& wait) const;
  void blameFrom(RankNews const& culprit, MessageWait const& wait);

  int const rank_;
  Spread const spread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<std::uint64_t, int, int>, std::deque<Message>> messages_;
  std::deque<Event> events_;  // in the order heard; their places in memory stay
  std::map<int, RankNews> lost_;
  int blamed_ = -1;
};

}  // namespace mscclpp
