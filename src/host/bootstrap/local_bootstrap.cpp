// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"

#include "base/format.hpp"
#include "host/bootstrap/mailbox.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {

struct LocalBootstrap::World {
  World(int ranks, std::chrono::nanoseconds limit) : timeout(limit), boxes(static_cast<std::size_t>(ranks)) {}

  std::chrono::nanoseconds timeout;
  std::vector<Mailbox> boxes;  // by receiving rank

  Mailbox& box(int rank) { return boxes[static_cast<std::size_t>(rank)]; }
};

std::vector<std::shared_ptr<Bootstrap>> LocalBootstrap::create(int ranks,
                                                               std::optional<std::chrono::nanoseconds> timeout) {
  if (ranks < 1)
    fail(ErrorCode::invalidUsage, "LocalBootstrap::create: {} ranks asked for, at least 1 is needed", ranks);
  auto const world = std::make_shared<World>(ranks, timeout.value_or(environment().timeout));
  std::vector<std::shared_ptr<Bootstrap>> result;
  result.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    result.push_back(std::shared_ptr<Bootstrap>(new LocalBootstrap(world, rank)));
  return result;
}

LocalBootstrap::LocalBootstrap(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

LocalBootstrap::~LocalBootstrap() {
  for (auto& box : world_->boxes) box.markLost(rank_, "it has ended its bootstrap");
}

int LocalBootstrap::getNranks() const { return static_cast<int>(world_->boxes.size()); }

std::chrono::nanoseconds LocalBootstrap::timeout() const { return world_->timeout; }

void LocalBootstrap::sendMessage(void const* data, std::size_t bytes, int peer, int tag) {
  if (auto const gone = world_->box(rank_).lost(peer)) {
    fail(ErrorCode::remoteError, "rank {}: cannot send to rank {}: {}", rank_, peer, *gone);
  }
  auto const* first = static_cast<std::byte const*>(data);
  world_->box(peer).push(rank_, tag, std::vector<std::byte>(first, first + bytes));
}

std::vector<std::byte> LocalBootstrap::recvMessage(int peer, int tag) {
  return world_->box(rank_).take(rank_, peer, tag, world_->timeout);
}

}  // namespace mscclpp
