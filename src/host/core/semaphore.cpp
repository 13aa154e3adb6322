// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/semaphore.hpp"

#include "base/format.hpp"
#include "host/core/communicator_impl.hpp"
#include "mscclpp/host/communicator.hpp"

namespace mscclpp {
namespace {

// The two counters have different writers: each gets a line to itself.
constexpr std::size_t expectedAt = 128;
constexpr std::size_t counterBytes = 256;

}  // namespace

struct MemoryDevice2DeviceSemaphore::Impl {
  std::shared_ptr<void> keepAlive;  // the communicator's watch
  DeviceMemory counters;
  RegisteredMemory own;
  RegisteredMemory remote;
  layout::SemaphoreHandle handle{};
};

MemoryDevice2DeviceSemaphore::MemoryDevice2DeviceSemaphore(Communicator const& communicator, int peer, int tag) {
  auto const& shared = CommunicatorImpl::of(communicator);
  shared->checkPeer("buildSemaphore", peer);
  if (peer == communicator.rank()) {
    fail(ErrorCode::invalidUsage, "rank {}: buildSemaphore names this rank itself as the peer", peer);
  }
  auto impl = std::make_shared<Impl>();
  impl->keepAlive = shared;
  impl->counters = DeviceMemory(communicator.device(), counterBytes, communicator.mappedKind());
  impl->own = communicator.registerMemory(impl->counters.data(), counterBytes);
  communicator.sendMemory(impl->own, peer, tag);
  impl->remote = communicator.recvMemory(peer, tag);
  if (impl->remote.size() != counterBytes) {
    fail(ErrorCode::invalidUsage,
         "rank {}: buildSemaphore with rank {} (tag {}) met other memory of {} bytes; both ranks must make the same "
         "calls "
         "in the same order for each tag",
         communicator.rank(), peer, tag, impl->remote.size());
  }
  auto* const base = static_cast<std::byte*>(impl->counters.data());
  impl->handle.inbound = reinterpret_cast<std::uint64_t*>(base);
  impl->handle.expected = reinterpret_cast<std::uint64_t*>(base + expectedAt);
  impl->handle.remoteInbound = reinterpret_cast<std::uint64_t*>(impl->remote.data());
  impl->handle.watch = shared->watch;
  impl->handle.peer = peer;
  impl->handle.id = shared->nextSemaphore++;
  impl_ = std::move(impl);
}

int MemoryDevice2DeviceSemaphore::peer() const noexcept { return impl_->handle.peer; }
layout::SemaphoreHandle MemoryDevice2DeviceSemaphore::deviceHandle() const { return impl_->handle; }

}  // namespace mscclpp
