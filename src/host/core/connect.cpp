// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/transport.hpp"

#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "host/core/communicator_impl.hpp"
#include "host/net/socket.hpp"
#include "host/transport/memory/memory_transport.hpp"
#include "host/transport/tcp/tcp_transport.hpp"
#include "host/transport/verbs/verbs_transport.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {

std::string_view nameOf(Transport transport) noexcept {
  switch (transport) {
    case Transport::memory:
      return "memory";
    case Transport::ib:
      return "ib";
    case Transport::tcp:
      return "tcp";
  }
  return "unknown";
}

Connection::~Connection() = default;
void Connection::abandon(RegisteredMemory const&, std::uint64_t) noexcept {}

// ---- which there are
// ------------------------------------------------------------------------------------------------

std::string missing(Transport transport, Device) {
  switch (transport) {
    case Transport::memory:
      return {};
    case Transport::ib:
      return missingVerbs();
    case Transport::tcp:
      return {};
  }
  return "there is no such transport";
}

std::shared_ptr<TransportContext> makeTransport(Transport transport, Device device, TransportOptions const& options) {
  if (auto const why = missing(transport, device); !why.empty()) {
    fail(ErrorCode::unsupported, "the {} transport cannot be used: {}; choose another (MSCCLPP_TRANSPORT)",
         nameOf(transport), why);
  }
  switch (transport) {
    case Transport::ib:
      return makeVerbsTransport(VerbsOptions::fromEnvironment(device, options));
    case Transport::tcp:
      return makeTcpTransport(TcpOptions::fromEnvironment(options));
    case Transport::memory:
      break;
  }
  return makeMemoryTransport();
}

// ---- checks that all share
// ------------------------------------------------------------------------------------------

namespace {

void checkRange(Connection const& connection, char const* operation, char const* which, RegisteredMemory const& memory,
                std::uint64_t offset, std::uint64_t bytes) {
  if (offset <= memory.size() && bytes <= memory.size() - offset) return;
  fail(ErrorCode::invalidUsage,
       "{} to rank {} ({}): bytes {} to {} of {} memory of rank {}, which has {}; give an offset and a size within it",
       operation, connection.peer(), nameOf(connection.transport()), offset, offset + bytes, which, memory.rank(),
       memory.size());
}

void checkTarget(Connection const& connection, char const* operation, RegisteredMemory const& dst) {
  if (!dst || dst.reach() == MemoryReach::own || dst.rank() != connection.peer()) {
    fail(ErrorCode::invalidUsage, "{} to rank {} ({}): the target is {}; give memory received from rank {}", operation,
         connection.peer(), nameOf(connection.transport()),
         dst ? fmt::format("memory of rank {}", dst.rank()) : std::string("empty"), connection.peer());
  }
  if (!dst.transports().has(connection.transport())) {
    fail(ErrorCode::invalidUsage,
         "{} to rank {}: the target is not registered for the {} transport of this connection; rank {} names it in "
         "registerMemory",
         operation, connection.peer(), nameOf(connection.transport()), connection.peer());
  }
}

}  // namespace

void checkWrite(Connection const& connection, RegisteredMemory const& dst, std::uint64_t dstOffset,
                RegisteredMemory const& src, std::uint64_t srcOffset, std::uint64_t bytes) {
  checkTarget(connection, "write", dst);
  if (!src || src.reach() != MemoryReach::own || !src.transports().has(connection.transport())) {
    fail(ErrorCode::invalidUsage,
         "write to rank {}: the source is {}; give this rank's own memory, registered for the {} transport",
         connection.peer(), src ? fmt::format("memory of rank {}", src.rank()) : std::string("empty"),
         nameOf(connection.transport()));
  }
  checkRange(connection, "write", "target", dst, dstOffset, bytes);
  checkRange(connection, "write", "source", src, srcOffset, bytes);
}

void checkSignal(Connection const& connection, RegisteredMemory const& dst, std::uint64_t dstOffset) {
  checkTarget(connection, "signal", dst);
  checkRange(connection, "signal", "target", dst, dstOffset, 8);
  if (dstOffset % 8 != 0) {
    fail(ErrorCode::invalidUsage, "signal to rank {} ({}): offset {} is no multiple of 8", connection.peer(),
         nameOf(connection.transport()), dstOffset);
  }
}

// ---- the communicator's part
// ----------------------------------------------------------------------------------------

std::shared_ptr<TransportContext> const& Communicator::Impl::context(Transport transport) {
  std::lock_guard const lock(contextsMutex);
  auto& known = contexts[transport];
  if (!known) known = makeTransport(transport, device, {.timeout = bootstrap->timeout()});
  return known;
}

Transport Communicator::transportTo(int peer) const {
  impl_->checkPeer("transportTo", peer);
  if (auto const set = environment().transport) return *set;
  if (impl_->sameHost(peer)) return Transport::memory;
  auto const both = TransportSet::ofBits(impl_->peer(peer).transports & impl_->peer(rank()).transports);
  for (auto const transport : {Transport::ib, Transport::tcp}) {
    if (both.has(transport)) return transport;
  }
  fail(ErrorCode::unsupported,
       "rank {}: there is no way to rank {} on another host: not both ranks have InfiniBand ({}) or TCP ({})", rank(),
       peer, missing(Transport::ib, impl_->device), missing(Transport::tcp, impl_->device));
}

TransportSet Communicator::transports() const {
  TransportSet set;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) set = set | transportTo(peer);
  }
  return set;
}

std::shared_ptr<Connection> Communicator::connect(int peer, EndpointConfig const& config, int tag) const {
  impl_->checkPeer("connect", peer);
  auto& bootstrap = *impl_->bootstrap;
  BootstrapAccess::checkTag(bootstrap, "connect", peer, tag);
  if (peer == rank()) fail(ErrorCode::invalidUsage, "rank {}: connect names this rank itself as the peer", peer);
  auto const transport = config.transport.value_or(transportTo(peer));
  if (transport == Transport::memory && !impl_->sameHost(peer)) {
    fail(ErrorCode::invalidUsage,
         "rank {}: rank {} is on another host, which the memory transport does not reach; use "
         "ib or tcp",
         rank(), peer);
  }
  auto const endpoint = impl_->context(transport)->createEndpoint(rank(), impl_->device);
  // Byte 0 says the transport, the rest is the transport's own.
  auto message = endpoint->address();
  message.insert(message.begin(), static_cast<std::byte>(transport));
  auto const where = BootstrapAccess::beside(tag, BootstrapAccess::endpoint);
  BootstrapAccess::send(bootstrap, message, peer, where);
  auto const answer = BootstrapAccess::recv(bootstrap, peer, where);
  if (answer.empty() || answer.size() > maxTransportBytes + 1) {
    fail(ErrorCode::remoteError, "rank {}: connect to rank {} (tag {}): its answer has {} bytes, at most {} are meant",
         rank(), peer, tag, answer.size(), maxTransportBytes + 1);
  }
  if (answer.front() != message.front()) {
    fail(ErrorCode::invalidUsage,
         "rank {}: connect to rank {} (tag {}) over {}, but rank {} chose transport {}; give both the same "
         "(EndpointConfig "
         "or MSCCLPP_TRANSPORT)",
         rank(), peer, tag, nameOf(transport), peer, nameOf(static_cast<Transport>(answer.front())));
  }
  return endpoint->connect(rank(), peer, std::span<std::byte const>(answer).subspan(1));
}

}  // namespace mscclpp
