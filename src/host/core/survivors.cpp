// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the ranks that are left agree on who they are.
//
// Rounds: each rank sends what it knows of every rank to all that it takes for alive, and adds what these tell it, and
// who of them has gone. Where everybody's knowledge in a round was the same, and nobody went, it is decided. A decision
// is told to all ranks, and whoever hears of one takes it for its own instead of going on with rounds. A rank returns
// only when all that the decision holds have told the same decision, or have gone: so no two that return differ,
// whenever others end, and whatever the evidence was on which somebody was left out.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/deadline.hpp"
#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "host/core/communicator_impl.hpp"
#include "host/net/socket.hpp"

namespace mscclpp {
namespace {

// In this order: who knows worse of a rank knows more.
enum class Is : std::uint8_t { alive, silent, gone };

struct Ballot {
  std::uint64_t attempt;
  std::uint32_t decided;
  std::uint32_t rejoins;  // a rank is in rejoin()
};

class Agreement {
 public:
  Agreement(CommunicatorImpl& communicator, bool rejoins)
      : communicator_(communicator),
        ownRejoins_(rejoins),
        rejoins_(rejoins),
        known_(static_cast<std::size_t>(communicator.size()), Is::alive),
        confirmed_(known_.size()) {
    attempt_ = ++communicator_.agreement;
  }

  std::vector<int> run() {
    do {
      while (!decided_ && !round()) {
      }
      requireMost();
      tellAll(true);
    } while (!confirm());
    std::vector<int> result;
    for (int peer = 0; peer < size(); ++peer) {
      if (of(peer) == Is::alive) result.push_back(peer);
    }
    return result;
  }

  std::vector<int> gone() {
    std::vector<int> result;
    for (int peer = 0; peer < size(); ++peer) {
      if (of(peer) == Is::gone) result.push_back(peer);
    }
    return result;
  }
  bool rejoins() const { return rejoins_; }

 private:
  struct Received {
    Ballot head{};
    std::vector<Is> known;
  };

  int self() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  std::chrono::nanoseconds limit() const { return communicator_.bootstrap->timeout(); }
  // Whoever is well may be in a call that ends only with this limit, and have begun it later than this rank this.
  std::chrono::nanoseconds patience() const { return limit() + limit() / 2; }
  Is& of(int rank) { return known_[static_cast<std::size_t>(rank)]; }

  // Sends to one rank; what it comes to is seen by receiving. Where there is no connection yet and the other does not
  // answer, the rest must not take this rank for silent meanwhile.
  void tell(int peer, bool decided) {
    Ballot const head{attempt_, decided ? 1u : 0u, rejoins_ ? 1u : 0u};
    std::vector<std::byte> message(sizeof head + known_.size());
    std::memcpy(message.data(), &head, sizeof head);
    std::memcpy(message.data() + sizeof head, known_.data(), known_.size());
    try {
      BootstrapAccess::sendTo(*communicator_.bootstrap, {communicator_.id, peer, BootstrapAccess::ballot},
                              {limit() / 8, {}, false}, message.data(), message.size());
    } catch (Error const& error) {
      log(LogLevel::info, "rank {}: cannot tell rank {} who is left: {}", self(), peer, error.what());
    }
  }
  // A decision goes also to those that it leaves out, which may be alive.
  void tellAll(bool decided) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != self() && (decided || of(peer) == Is::alive)) tell(peer, decided);
    }
  }

  // The next ballot of `peer` of this attempt or of a later one; or how it is.
  Is hear(int peer, Deadline const& deadline, Received& received) {
    do {
      std::vector<std::byte> message;
      if (auto const early = communicator_.earlyBallots.find(peer); early != communicator_.earlyBallots.end()) {
        message = std::move(early->second);
        communicator_.earlyBallots.erase(early);
      } else {
        try {
          message =
              BootstrapAccess::recvFrom(*communicator_.bootstrap, {communicator_.id, peer, BootstrapAccess::ballot},
                                        {std::max(deadline.left(), std::chrono::nanoseconds::zero()), {}, false});
        } catch (Error const& error) {
          log(LogLevel::info, "rank {}: goes on without rank {}: {}", self(), peer, error.what());
          return error.code() == ErrorCode::timeout ? Is::silent : Is::gone;
        }
      }
      if (message.size() != sizeof(Ballot) + known_.size()) {
        fail(ErrorCode::remoteError, "rank {}: survivors: rank {} has sent {} bytes, not {}", self(), peer,
             message.size(), sizeof(Ballot) + known_.size());
      }
      std::memcpy(&received.head, message.data(), sizeof received.head);
      received.known.resize(known_.size());
      std::memcpy(received.known.data(), message.data() + sizeof received.head, known_.size());
      if (received.head.attempt > attempt_) communicator_.earlyBallots[peer] = std::move(message);
    } while (received.head.attempt < attempt_);  // those of an attempt that was broken off are passed over
    return Is::alive;
  }

  // True where all have known the same.
  bool round() {
    auto const before = known_;
    bool const rejoinsBefore = rejoins_;
    auto merged = known_;
    bool same = true;
    tellAll(false);
    Deadline const deadline(patience());
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == self() || before[static_cast<std::size_t>(peer)] != Is::alive) continue;
      Received received;
      auto& seen = merged[static_cast<std::size_t>(peer)];
      if (auto const is = hear(peer, deadline, received); is != Is::alive) {
        seen = std::max(seen, is);
        same = false;
        continue;
      }
      if (received.head.attempt > attempt_) return restart(received.head.attempt);
      if (received.head.decided != 0) return adopt(peer, received);
      bool const theirs = received.head.rejoins != 0;
      same = same && received.known == before && theirs == rejoinsBefore;
      rejoins_ = rejoins_ || theirs;
      for (std::size_t i = 0; i < merged.size(); ++i) merged[i] = std::max(merged[i], received.known[i]);
    }
    known_ = merged;
    requireOwn();
    return same;
  }

  // A rank whose attempt was broken off has begun another, without a word that this one was decided: this rank joins
  // it.
  bool restart(std::uint64_t attempt) {
    attempt_ = communicator_.agreement = attempt;
    rejoins_ = ownRejoins_;
    std::fill(known_.begin(), known_.end(), Is::alive);
    confirmed_.assign(known_.size(), false);
    decided_ = false;
    return false;
  }

  bool adopt(int peer, Received const& decision) {
    known_ = decision.known;
    rejoins_ = decision.head.rejoins != 0;
    decided_ = true;
    confirmed_[static_cast<std::size_t>(peer)] = true;
    requireOwn();
    return true;
  }

  void requireOwn() {
    if (of(self()) != Is::alive) failGivenUp();
  }
  [[noreturn]] void failGivenUp() const {
    fail(ErrorCode::remoteError, "rank {}: others have given this rank up; it cannot go on with them", self());
  }

  // Ranks that are only silent may have taken this one's part for silent. Of two such parts at most one may go on.
  void requireMost() {
    auto const count = [&](Is is) { return std::count(known_.begin(), known_.end(), is); };
    if (count(Is::silent) == 0 || count(Is::alive) > count(Is::silent)) return;
    auto const first = std::find_if(known_.begin(), known_.end(), [](Is is) { return is != Is::gone; });
    if (count(Is::alive) == count(Is::silent) && *first == Is::alive) return;
    fail(
        ErrorCode::remoteError,
        "rank {}: survivors: only {} of the {} ranks that have not ended answer within {}; the others may have gone on "
        "without this one, so it must not; MSCCLPP_TIMEOUT sets the limit",
        self(), count(Is::alive), count(Is::alive) + count(Is::silent), describe(patience()));
  }

  // Waits until all have told the same decision, or are no more. False: one has begun again, so nobody has returned.
  bool confirm() {
    // Others may have to wait for a silent rank before they look.
    Deadline const deadline(2 * patience());
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == self() || of(peer) != Is::alive || confirmed_[static_cast<std::size_t>(peer)]) continue;
      if (!confirm(peer, deadline)) return false;
    }
    return true;
  }
  bool confirm(int peer, Deadline const& deadline) {
    for (;;) {
      Received received;
      auto const is = hear(peer, deadline, received);
      if (is == Is::gone) return true;
      if (is == Is::silent) {
        fail(ErrorCode::timeout,
             "rank {}: survivors: rank {} has not confirmed who is left within {}; does it run? Repeat the call on all "
             "ranks",
             self(), peer, describe(deadline.limit()));
      }
      if (received.head.attempt > attempt_) return restart(received.head.attempt);
      if (received.head.decided == 0) continue;
      if (received.known == known_) return true;
      if (received.known[static_cast<std::size_t>(self())] != Is::alive) failGivenUp();
      fail(ErrorCode::remoteError, "rank {}: survivors: rank {} has decided otherwise; repeat the call on all ranks",
           self(), peer);
    }
  }

  CommunicatorImpl& communicator_;
  bool const ownRejoins_;
  bool rejoins_;  // as far as is known, any rank
  std::uint64_t attempt_ = 0;
  std::vector<Is> known_;
  std::vector<bool> confirmed_;  // who has told the decision
  bool decided_ = false;
};

}  // namespace

CommunicatorImpl::Agreed CommunicatorImpl::agree(bool rejoins) {
  std::lock_guard const lock(agreementMutex);
  Agreement attempt(*this, rejoins);
  try {
    return {.left = attempt.run(), .gone = attempt.gone(), .rejoins = attempt.rejoins(), .number = agreement};
  } catch (Error const& error) {
    return {.left = {}, .gone = attempt.gone(), .rejoins = attempt.rejoins(), .number = agreement, .failure = error};
  }
}

std::vector<int> Communicator::survivors() const {
  // Whoever is in rejoin(), perhaps within a collective call, learns by the same agreement that ranks are missing, and
  // comes here next.
  constexpr int attempts = 5;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    auto const agreed = impl_->agree(false);
    if (agreed.failure) throw *agreed.failure;
    if (!agreed.rejoins || static_cast<int>(agreed.left.size()) == size()) return agreed.left;
  }
  fail(ErrorCode::remoteError,
       "rank {}: survivors: others still call rejoin(), or collectives, which do so after a failure; call survivors() "
       "on all ranks that are left",
       rank());
}

}  // namespace mscclpp
