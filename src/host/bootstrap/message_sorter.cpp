// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contexts over a bootstrap that has none: the messages of all contexts travel with their context in front, under tags
// beside those of the bootstrap itself. Of the threads that wait for one peer and tag, one at a time receives, and
// leaves what is for others here.
#include <cstring>
#include <set>

#include "base/deadline.hpp"
#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "host/bootstrap/mailbox.hpp"
#include "mscclpp/host/wait.hpp"

namespace mscclpp {
namespace {

// Tags go from -2^30 - 72 to 2^24 - 1; from there on there is room for as many.
constexpr int sorted(int tag) { return tag + (1 << 30) + (1 << 25); }

}  // namespace

struct Bootstrap::Sorter {
  explicit Sorter(int rank) : arrived(rank, [](RankNews const&) {}) {}

  bool begin(MessageAddress const& from) {
    std::lock_guard const lock(mutex);
    return receiving.emplace(from.peer, from.tag).second;
  }
  void end(MessageAddress const& from) {
    std::lock_guard const lock(mutex);
    receiving.erase({from.peer, from.tag});
  }

  Mailbox arrived;
  std::mutex mutex;
  std::set<std::pair<int, int>> receiving;  // peers and tags that a thread receives from
};

Bootstrap::Bootstrap() = default;
Bootstrap::~Bootstrap() = default;

void Bootstrap::sendTo(MessageAddress const& to, MessageWait const&, void const* data, std::size_t bytes) {
  if (to.context == 0) return sendMessage(data, bytes, to.peer, to.tag);
  std::vector<std::byte> message(sizeof to.context + bytes);
  std::memcpy(message.data(), &to.context, sizeof to.context);
  if (bytes != 0) std::memcpy(message.data() + sizeof to.context, data, bytes);
  sendMessage(message.data(), message.size(), to.peer, sorted(to.tag));
}

std::vector<std::byte> Bootstrap::recvFrom(MessageAddress const& from, MessageWait const& wait) {
  if (from.context == 0) return recvMessage(from.peer, from.tag);
  {
    std::lock_guard const lock(sorterMutex_);
    if (!sorter_) sorter_ = std::make_unique<Sorter>(getRank());
  }
  Sorter& sorter = *sorter_;
  struct Turn {
    ~Turn() { sorter.end(from); }
    Sorter& sorter;
    MessageAddress const& from;
  };
  std::optional<std::vector<std::byte>> message;
  bool turn = false;
  Deadline const deadline(wait.limit);
  while (hostWait(
      [&] {
        message = sorter.arrived.tryTake(from);
        return message || turn || (turn = sorter.begin(from));
      },
      std::max(deadline.left(), std::chrono::nanoseconds::zero()))) {
    if (message) return *std::move(message);
    turn = false;
    Turn const mine{sorter, from};
    // Whoever had the turn before may have left it here just now.
    if ((message = sorter.arrived.tryTake(from))) return *std::move(message);
    auto received = recvMessage(from.peer, sorted(from.tag));
    std::uint64_t context = 0;
    if (received.size() < sizeof context) continue;
    std::memcpy(&context, received.data(), sizeof context);
    received.erase(received.begin(), received.begin() + sizeof context);
    sorter.arrived.push({context, from.peer, from.tag}, std::move(received));
  }
  fail(
      ErrorCode::timeout,
      "rank {}: waited {} for a message of rank {} to a group, which did not come; does rank {} run, and make the same "
      "calls in the same order? MSCCLPP_TIMEOUT sets the limit",
      getRank(), describe(wait.limit), from.peer, from.peer);
}

}  // namespace mscclpp
