// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a transport implements: a context per communicator, registrations of own memory, endpoints, connections.
//
// The communicator makes a context at first use and keeps it. RegisteredMemory holds one Registration per transport,
// and carries its key to the peers in serialize(). To connect, both sides make an endpoint, exchange the addresses over
// the bootstrap, and call connect() on their own; it may wait for the peer, with the bootstrap's limit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/transport_set.hpp"

namespace mscclpp {

// Own memory as one transport knows it; undone with the object.
class Registration {
 public:
  virtual ~Registration() = default;
  // What a peer needs to reach it; at most `maxTransportBytes`.
  virtual std::vector<std::byte> key() const = 0;
  // What this rank's own requests name it by: one for each device of the transport, where it has any.
  virtual std::span<std::uint32_t const> localKeys() const { return {}; }
};

class TransportEndpoint {
 public:
  virtual ~TransportEndpoint() = default;
  // At most `maxTransportBytes`.
  virtual std::vector<std::byte> address() const = 0;
  // Once. `rank` and `peer` are for errors. The connection may outlive endpoint and context. Bytes of a peer are to be
  // distrusted: throws remoteError where `peerAddress` makes no sense.
  virtual std::shared_ptr<Connection> connect(int rank, int peer, std::span<std::byte const> peerAddress) = 0;
};

class TransportContext {
 public:
  virtual ~TransportContext() = default;
  virtual Transport transport() const noexcept = 0;
  // Of memory of `device`; `rank` is for errors.
  virtual std::shared_ptr<Registration> registerMemory(int rank, Device device, void* data, std::size_t bytes) = 0;
  virtual std::unique_ptr<TransportEndpoint> createEndpoint(int rank, Device device) = 0;
};

inline constexpr std::size_t maxTransportBytes = 4096;

// For write() and signal() of connections: throws invalidUsage, naming what does not fit, where own memory `src` and
// peer's memory `dst` cannot be copied between like this by `connection`.
void checkWrite(Connection const& connection, RegisteredMemory const& dst, std::uint64_t dstOffset,
                RegisteredMemory const& src, std::uint64_t srcOffset, std::uint64_t bytes);
void checkSignal(Connection const& connection, RegisteredMemory const& dst, std::uint64_t dstOffset);

struct TransportOptions {
  std::chrono::nanoseconds timeout{};  // longest silence of a peer that owes an answer
};

}  // namespace mscclpp
