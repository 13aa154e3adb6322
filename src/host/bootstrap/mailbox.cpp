// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/mailbox.hpp"

#include <algorithm>
#include <utility>

#include "base/deadline.hpp"
#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "mscclpp/host/wait.hpp"

namespace mscclpp {
namespace {

using Kind = RankNews::Kind;

// A rank that has ended without a word may have done its part before: the others get so long to complete the call.
constexpr std::chrono::nanoseconds grace = std::chrono::milliseconds(500);
// Who goes so soon after another rank has probably gone because of it.
constexpr std::chrono::nanoseconds aftermath = std::chrono::seconds(1);

bool contains(std::vector<int> const& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

void Mailbox::push(MessageAddress const& from, std::vector<std::byte> message) {
  auto order = hostRelease();
  {
    std::lock_guard const lock(mutex_);
    messages_[{from.context, from.peer, from.tag}].push_back({std::move(message), std::move(order)});
  }
  changed_.notify_all();
}

void Mailbox::forget(int peer) {
  std::lock_guard const lock(mutex_);
  std::erase_if(messages_, [&](auto const& entry) { return std::get<1>(entry.first) == peer; });
}

bool Mailbox::tell(RankNews const& news) {
  {
    std::lock_guard const lock(mutex_);
    for (auto const& known : events_) {
      bool const same = (known.news.kind == Kind::failed) == (news.kind == Kind::failed);
      if (known.news.rank == news.rank && same) return false;
    }
    events_.push_back({news, std::chrono::steady_clock::now()});
  }
  changed_.notify_all();
  return true;
}

void Mailbox::lose(RankNews const& news) {
  {
    std::lock_guard const lock(mutex_);
    lost_.try_emplace(news.rank, news);
  }
  changed_.notify_all();
}

void Mailbox::loseEnded(int rank) {
  std::optional<RankNews> news;
  {
    std::lock_guard const lock(mutex_);
    for (auto const& known : events_) {
      if (known.news.rank == rank && known.news.kind != Kind::failed) news = known.news;
    }
  }
  if (news) lose(*news);
}

int Mailbox::blamed() const {
  std::lock_guard const lock(mutex_);
  return blamed_;
}

// The others learn it where their waits cannot end well either: a rank that has died, or a collective, is of concern to
// all. That somebody waits for one that has left may be their own affair.
void Mailbox::blameFrom(RankNews const& culprit, MessageWait const& wait) {
  if (wait.members.empty()) return;
  {
    std::lock_guard const lock(mutex_);
    if (blamed_ < 0) blamed_ = culprit.rank;
  }
  if (wait.collective || culprit.kind == Kind::died) spread_({culprit.rank, Kind::failed, -1, culprit.reason});
}

RankNews const* Mailbox::blameForLoss(int peer, MessageWait const& wait) const {
  auto const found = lost_.find(peer);
  if (found == lost_.end()) return nullptr;
  RankNews const& loss = found->second;
  auto const counts = [&](int rank) { return rank != peer && rank != rank_ && contains(wait.members, rank); };
  auto const heard = [&](int rank) {
    return std::find_if(events_.begin(), events_.end(), [&](Event const& event) { return event.news.rank == rank; });
  };
  if (loss.kind == Kind::left) {
    auto const cause = loss.cause >= 0 && counts(loss.cause) ? heard(loss.cause) : events_.end();
    return cause == events_.end() ? &loss : &cause->news;
  }
  auto const own = heard(peer);
  for (auto event = events_.begin(); event != own && own != events_.end(); ++event) {
    bool const before = event->news.kind != Kind::left && own->time - event->time < aftermath;
    if (before && counts(event->news.rank)) return &event->news;
  }
  return &loss;
}

RankNews const* Mailbox::blame(MessageAddress const& from, MessageWait const& wait) const {
  if (auto const* const culprit = blameForLoss(from.peer, wait)) return culprit;
  auto const now = std::chrono::steady_clock::now();
  // Nobody sets up anything with a rank that has died, so what is the library's own may not come any more.
  bool const ofAll = wait.collective || from.tag < 0;
  for (auto const& [news, time] : events_) {
    if (news.rank == rank_ || !contains(wait.members, news.rank)) continue;
    if (news.kind == Kind::failed) return &news;
    if (news.kind == Kind::died && ofAll && now - time > grace) return &news;
  }
  return nullptr;
}

void Mailbox::requirePresent(MessageAddress const& to, MessageWait const& wait, std::string const& what) {
  int const peer = to.peer;
  RankNews culprit;
  {
    std::lock_guard const lock(mutex_);
    auto const* const found = blameForLoss(peer, wait);
    if (found == nullptr) return;
    culprit = *found;
  }
  blameFrom(culprit, wait);
  if (culprit.rank == peer) {
    fail(ErrorCode::remoteError, "{}: rank {} is gone ({}); see that rank's output", what, peer, culprit.reason);
  }
  fail(ErrorCode::remoteError, "{}, which has left: rank {} is gone ({}); see rank {}'s output", what, culprit.rank,
       culprit.reason, culprit.rank);
}

std::optional<Mailbox::Message> Mailbox::takeLocked(MessageAddress const& from) {
  auto const found = messages_.find({from.context, from.peer, from.tag});
  if (found == messages_.end()) return {};
  Message message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) messages_.erase(found);
  return message;
}

std::optional<std::vector<std::byte>> Mailbox::tryTake(MessageAddress const& from) {
  std::unique_lock lock(mutex_);
  auto message = takeLocked(from);
  lock.unlock();
  if (!message) return {};
  hostAcquire(message->order);
  return std::move(message->data);
}

std::vector<std::byte> Mailbox::take(MessageAddress const& from, MessageWait const& wait) {
  int const peer = from.peer;
  std::optional<Message> message;
  std::optional<RankNews> culprit;
  auto const look = [&] {
    message = takeLocked(from);
    if (message) return true;
    if (auto const* const found = blame(from, wait)) culprit = *found;
    return culprit.has_value();
  };
  bool done = false;
  std::unique_lock lock(mutex_);
  if (threadHostWait() != nullptr) {
    lock.unlock();
    done = hostWait(
        [&] {
          std::lock_guard const looking(mutex_);
          return look();
        },
        wait.limit);
  } else {
    Deadline const deadline(wait.limit);
    while (!(done = look()) && !deadline.expired()) {
      // In slices, so that a limit of years does not overflow the clock's end, and a grace is not overslept.
      std::chrono::nanoseconds slice = std::chrono::hours(1);
      if (!events_.empty()) slice = std::chrono::milliseconds(50);
      changed_.wait_for(lock, std::min(deadline.left(), slice));
    }
    lock.unlock();
  }
  if (message) {
    hostAcquire(message->order);
    return std::move(message->data);
  }
  auto const what =
      from.tag >= 0 ? fmt::format("a message with tag {}", from.tag) : std::string("its part of a collective call");
  if (!done) {
    fail(ErrorCode::timeout,
         "rank {}: waited {} for {} of rank {}, which did not come; does rank {} run, and make the same calls in the "
         "same order? MSCCLPP_TIMEOUT sets the limit",
         rank_, describe(wait.limit), what, peer, peer);
  }
  blameFrom(*culprit, wait);
  if (culprit->rank == peer) {
    fail(ErrorCode::remoteError, "rank {}: waited for {} of rank {}, but rank {} is gone ({}); see that rank's output",
         rank_, what, peer, peer, culprit->reason);
  }
  fail(ErrorCode::remoteError,
       "rank {}: waited for {} of rank {}, which cannot go on: rank {} is gone ({}); see rank {}'s output", rank_, what,
       peer, culprit->rank, culprit->reason, culprit->rank);
}

}  // namespace mscclpp
