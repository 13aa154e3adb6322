// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"

#include <unistd.h>

#include <deque>
#include <new>
#include <numeric>

#include "base/format.hpp"
#include "host/bootstrap/mailbox.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

// Far beyond the threads that a process can have.
constexpr int mostThreads = 1 << 16;

}  // namespace

struct LocalBootstrap::World {
  World(int ranks, std::chrono::nanoseconds limit) : timeout(limit), everyone(static_cast<std::size_t>(ranks)) {
    std::iota(everyone.begin(), everyone.end(), 0);
    for (int const rank : everyone) {
      boxes.emplace_back(rank, [this](RankNews const& news) { tell(news); });
    }
  }

  void tell(RankNews const& news) {
    for (auto& box : boxes) box.tell(news);
  }
  Mailbox& box(int rank) { return boxes[static_cast<std::size_t>(rank)]; }

  std::chrono::nanoseconds const timeout;
  std::vector<int> everyone;
  std::deque<Mailbox> boxes;  // by receiving rank
  ::pid_t const owner = ::getpid();
};

std::vector<std::shared_ptr<Bootstrap>> LocalBootstrap::create(int ranks,
                                                               std::optional<std::chrono::nanoseconds> timeout) {
  if (ranks < 1 || ranks > mostThreads) {
    fail(ErrorCode::invalidUsage, "LocalBootstrap::create: {} ranks asked for, allowed are 1 to {}", ranks,
         mostThreads);
  }
  auto const world = std::make_shared<World>(ranks, timeout.value_or(environment().timeout));
  std::vector<std::shared_ptr<Bootstrap>> result;
  result.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    result.push_back(std::shared_ptr<Bootstrap>(new LocalBootstrap(world, rank)));
  return result;
}

LocalBootstrap::LocalBootstrap(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

LocalBootstrap::~LocalBootstrap() {
  if (world_->owner != ::getpid()) {
    // After fork(): the locks may be held by threads that are not here. Kept until the process ends.
    new (std::nothrow) std::shared_ptr<World>(world_);
    return;
  }
  RankNews const news{rank_, RankNews::Kind::left, world_->box(rank_).blamed(), "it has ended its bootstrap"};
  world_->tell(news);
  for (auto& box : world_->boxes) box.lose(news);
}

int LocalBootstrap::getNranks() const { return static_cast<int>(world_->boxes.size()); }

std::chrono::nanoseconds LocalBootstrap::timeout() const { return world_->timeout; }

void LocalBootstrap::sendTo(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes) {
  world_->box(rank_).requirePresent(to, wait, fmt::format("rank {}: cannot send to rank {}", rank_, to.peer));
  auto const* first = static_cast<std::byte const*>(data);
  world_->box(to.peer).push({to.context, rank_, to.tag}, std::vector<std::byte>(first, first + bytes));
}

std::vector<std::byte> LocalBootstrap::recvFrom(MessageAddress const& from, MessageWait const& wait) {
  return world_->box(rank_).take(from, wait);
}

void LocalBootstrap::declareLost(std::string const& reason) {
  RankNews const news{rank_, RankNews::Kind::died, -1, reason};
  world_->tell(news);
  for (auto& box : world_->boxes) box.lose(news);
}

void LocalBootstrap::sendMessage(void const* data, std::size_t bytes, int peer, int tag) {
  sendTo({0, peer, tag}, {world_->timeout, world_->everyone, false}, data, bytes);
}

std::vector<std::byte> LocalBootstrap::recvMessage(int peer, int tag) {
  return recvFrom({0, peer, tag}, {world_->timeout, world_->everyone, false});
}

}  // namespace mscclpp
