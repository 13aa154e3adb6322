// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a communicator's ranks connect: which transport, and the exchange of the endpoints' addresses.
#include "base/format.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "host/core/communicator_impl.hpp"
#include "host/core/transports.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {

std::shared_ptr<TransportContext> const& CommunicatorImpl::context(Transport transport) {
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
       peer, missing(Transport::ib), missing(Transport::tcp));
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
  if (transport == Transport::memory && !impl_->sameHost(peer) && !impl_->sameDomain(peer)) {
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
