// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/port_semaphore.hpp"

#include "base/format.hpp"
#include "host/core/communicator_impl.hpp"

namespace mscclpp {
namespace {

// The two counters have different writers: each gets a line to itself.
constexpr std::size_t expectedAt = 128;
constexpr std::size_t counterBytes = 256;

}  // namespace

struct Host2DeviceSemaphore::Impl {
  std::shared_ptr<CommunicatorImpl> keepAlive;  // its transports
  std::shared_ptr<Connection> connection;
  DeviceMemory counters;
  RegisteredMemory own;
  RegisteredMemory remote;
  std::uint64_t signals = 0;
};

Host2DeviceSemaphore::Host2DeviceSemaphore(Communicator const& communicator, std::shared_ptr<Connection> connection,
                                           int tag) {
  int const rank = communicator.rank();
  if (!connection) {
    fail(ErrorCode::invalidUsage, "rank {}: a Host2DeviceSemaphore needs a connection (Communicator::connect)", rank);
  }
  auto impl = std::make_shared<Impl>();
  int const peer = connection->peer();
  impl->keepAlive = CommunicatorImpl::of(communicator);
  impl->connection = std::move(connection);
  impl->counters = DeviceMemory(communicator.device(), counterBytes, communicator.mappedKind());
  impl->own = communicator.registerMemory(impl->counters.data(), counterBytes, impl->connection->transport());
  communicator.sendMemory(impl->own, peer, tag);
  impl->remote = communicator.recvMemory(peer, tag);
  if (impl->remote.size() != counterBytes) {
    fail(ErrorCode::invalidUsage,
         "rank {}: a Host2DeviceSemaphore with rank {} (tag {}) met other memory of {} bytes; both ranks must make the "
         "same calls in the same order for each tag",
         rank, peer, tag, impl->remote.size());
  }
  impl_ = std::move(impl);
}

std::shared_ptr<Connection> const& Host2DeviceSemaphore::connection() const noexcept { return impl_->connection; }
int Host2DeviceSemaphore::peer() const noexcept { return impl_->connection->peer(); }
std::uint64_t* Host2DeviceSemaphore::inbound() const noexcept {
  return static_cast<std::uint64_t*>(impl_->counters.data());
}
std::uint64_t* Host2DeviceSemaphore::expected() const noexcept {
  return inbound() + expectedAt / sizeof(std::uint64_t);
}

void Host2DeviceSemaphore::signal() const {
  impl_->connection->signal(impl_->remote, 0, impl_->signals + 1);
  ++impl_->signals;
}

void Host2DeviceSemaphore::abandon() const noexcept { impl_->connection->abandon(impl_->remote, 0); }

}  // namespace mscclpp
