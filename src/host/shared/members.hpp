// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ranks of a communicator that make something together, and steps that they take together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "host/core/communicator_impl.hpp"
#include "mscclpp/base/config.hpp"

namespace mscclpp {

class Members {
 public:
  // `what` is being made, by `ranks` of the communicator in this order; empty: by all. Throws invalidUsage where they
  // are no distinct ranks of it, do not hold the caller, or are too many.
  Members(std::string what, CommunicatorImpl const& communicator, std::vector<int> ranks)
      : what_(std::move(what)),
        communicator_(communicator),
        bootstrap_(communicator.setup()),
        ranks_(std::move(ranks)) {
    int const self = communicator.rank();
    if (ranks_.empty()) {
      ranks_.resize(static_cast<std::size_t>(communicator.size()));
      std::iota(ranks_.begin(), ranks_.end(), 0);
    }
    if (ranks_.size() > static_cast<std::size_t>(maxTeamSize)) {
      fail(ErrorCode::invalidUsage, "rank {}: {} of {} ranks; a {} holds at most {}", self, what_, ranks_.size(),
           lowered(), maxTeamSize);
    }
    for (int member : ranks_) communicator.checkPeer(what_, member);
    if (std::set<int>(ranks_.begin(), ranks_.end()).size() != ranks_.size()) {
      fail(ErrorCode::invalidUsage, "rank {}: {} over {} names a rank twice", self, what_, fmt::format("{}", ranks_));
    }
    auto const at = std::find(ranks_.begin(), ranks_.end(), self);
    if (at == ranks_.end()) {
      fail(ErrorCode::invalidUsage, "rank {}: {} over {} does not hold the calling rank", self, what_,
           fmt::format("{}", ranks_));
    }
    place_ = static_cast<int>(at - ranks_.begin());
  }

  std::vector<int> const& ranks() const { return ranks_; }
  int place() const { return place_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // Whether all are threads of this process.
  bool alone() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](int member) { return communicator_.sameProcess(member); });
  }

  // Everybody's bytes, by place.
  std::vector<std::vector<std::byte>> gather(std::vector<std::byte> const& mine) const {
    send(mine);
    return collect(mine, [](auto const&) { return true; });
  }

  // What step() returned everywhere. Lets no member wait for one that failed: the outcome is told to all, and all
  // throw. Who has waited in vain in its step, or hears of such a wait, awaits no more answers: each would take as long
  // again, and all shall come to what they do about it at about the same time.
  template <class Step>
  std::vector<std::vector<std::byte>> together(Step&& step) const {
    std::vector<std::byte> mine;
    std::optional<Error> own;
    try {
      mine = pack(Outcome::good, step());
    } catch (Error const& error) {
      own = error;
      std::string_view const text = error.what();
      mine = pack(error.code() == ErrorCode::timeout ? Outcome::timeout : Outcome::failure,
                  std::as_bytes(std::span(text.data(), text.size())));
    }
    if (own && own->code() == ErrorCode::timeout) {
      tellAtOnce(mine);
      throw *own;
    }
    send(mine);
    auto all = collect(mine, [](auto const& message) { return outcomeOf(message) != Outcome::timeout; });
    if (own) throw *own;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (outcomeOf(all[i]) != Outcome::good) {
        fail(
            ErrorCode::remoteError, "rank {}: rank {} failed while the {} was made: {}", communicator_.rank(),
            ranks_[i], lowered(),
            std::string_view(reinterpret_cast<char const*>(all[i].data()) + 1, all[i].empty() ? 0 : all[i].size() - 1));
      }
      all[i].erase(all[i].begin());
    }
    return all;
  }

  // The same of values, which go as their bytes. Throws invalidUsage where a member sends what is none: it is making
  // something else.
  template <class Step, class T = std::invoke_result_t<Step>>
  std::vector<T> propose(Step&& step) const {
    static_assert(std::is_trivially_copyable_v<T>);
    auto const all = together([&] {
      auto const mine = step();
      auto const bytes = std::as_bytes(std::span<T const, 1>(&mine, 1));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    });
    std::vector<T> proposals(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].size() != sizeof(T)) {
        fail(ErrorCode::invalidUsage,
             "rank {}: rank {} is not making the same {}; all members must make what they share in the same order",
             communicator_.rank(), ranks_[i], lowered());
      }
      std::memcpy(&proposals[i], all[i].data(), sizeof(T));
    }
    return proposals;
  }

 private:
  enum class Outcome : std::uint8_t { failure, good, timeout };

  MessageWait collective() const { return {bootstrap_->timeout(), ranks_, true}; }
  void send(std::vector<std::byte> const& mine) const {
    for (int peer : ranks_) {
      if (peer == bootstrap_->getRank()) continue;
      BootstrapAccess::sendTo(*bootstrap_, {0, peer, BootstrapAccess::team}, collective(), mine.data(), mine.size());
    }
  }
  void tellAtOnce(std::vector<std::byte> const& mine) const {
    for (int peer : ranks_) {
      if (peer == bootstrap_->getRank()) continue;
      try {
        BootstrapAccess::sendTo(*bootstrap_, {0, peer, BootstrapAccess::team},
                                {bootstrap_->timeout() / 8, ranks_, false}, mine.data(), mine.size());
      } catch (Error const&) {  // perhaps the one that was waited for
      }
    }
  }
  // Everybody's bytes, by place, up to one after which goesOn() is false.
  template <class GoesOn>
  std::vector<std::vector<std::byte>> collect(std::vector<std::byte> const& mine, GoesOn&& goesOn) const {
    std::vector<std::vector<std::byte>> result;
    for (int peer : ranks_) {
      result.push_back(peer == bootstrap_->getRank()
                           ? mine
                           : BootstrapAccess::recvFrom(*bootstrap_, {0, peer, BootstrapAccess::team}, collective()));
      if (!goesOn(result.back())) break;
    }
    return result;
  }

  static Outcome outcomeOf(std::vector<std::byte> const& message) {
    return message.empty() ? Outcome::failure : static_cast<Outcome>(message.front());
  }
  static std::vector<std::byte> pack(Outcome outcome, std::span<std::byte const> content) {
    std::vector<std::byte> message(content.size() + 1);
    message[0] = static_cast<std::byte>(outcome);
    std::copy(content.begin(), content.end(), message.begin() + 1);
    return message;
  }
  std::string lowered() const {  // for the middle of a sentence
    auto text = what_;
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
    return text;
  }

  std::string what_;
  CommunicatorImpl const& communicator_;
  std::shared_ptr<Bootstrap> bootstrap_;
  std::vector<int> ranks_;
  int place_ = 0;
};

}  // namespace mscclpp
