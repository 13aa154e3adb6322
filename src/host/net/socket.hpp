// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TCP sockets as the bootstrap needs them: addresses, listening, connecting and moving bytes before a deadline. Sockets
// are non-blocking, closed on exec and in children of fork(); SIGPIPE is never raised.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/file_handle.hpp"

namespace mscclpp {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr const* get() const { return reinterpret_cast<sockaddr const*>(&storage); }
  std::uint16_t port() const;
  void setPort(std::uint16_t port);
  bool isLoopback() const;
  std::string host() const;      // numeric
  std::string toString() const;  // "10.0.0.1:5000", "[::1]:5000"
};

// Fixed-size form that travels between ranks. family: 4 or 6.
struct WireAddress {
  std::uint16_t family;
  std::uint16_t port;
  std::array<std::uint8_t, 16> ip;
};
WireAddress toWire(SocketAddress const& address);
std::optional<SocketAddress> fromWire(WireAddress const& wire);

// "[interface:]host:port" taken apart; throws invalidUsage.
struct Endpoint {
  std::string interfaceName;  // may be empty
  std::string host;
  std::uint16_t port = 0;
};
Endpoint parseEndpoint(std::string const& text);
bool isNumericAddress(std::string const& host);

// All addresses of a host name; throws systemError naming it.
std::vector<SocketAddress> resolve(std::string const& host, std::uint16_t port);
// Address of the named interface, or of the best one where the name is empty. Port 0.
SocketAddress interfaceAddress(std::string const& name);
// Whether this host has it.
bool isOwnAddress(SocketAddress const& address);

// `purpose` begins the error text.
FileHandle listenOn(std::string const& purpose, SocketAddress const& address);
// A port that is free now, for this user's programs alone: whoever has the socket may listen(), or another process of
// the host by listenOnReserved(), until which connections are refused.
FileHandle reservePort(std::string const& purpose, SocketAddress const& address);
FileHandle listenOnReserved(std::string const& purpose, SocketAddress const& address);
// At all addresses, of IPv6 too where there is any.
FileHandle listenOnAll(std::string const& purpose, std::uint16_t port);
// Empty, with errno, where there is none. Of unix sockets, too.
FileHandle acceptFrom(int listener);
// Whether a call on a socket that does not block is only to be made again.
bool wouldBlock(int error);
SocketAddress localAddress(int socket);
SocketAddress remoteAddress(int socket);

// Empty, with `error` set to errno's value, where the peer cannot be reached now or the deadline passed (ETIMEDOUT).
FileHandle connectTo(SocketAddress const& address, Deadline const& deadline, int& error);

// 0 when all was moved; else errno's value: ETIMEDOUT past the deadline, ECONNRESET where the peer closed.
int sendAll(int socket, std::span<std::byte const> data, Deadline const& deadline);
int recvAll(int socket, std::span<std::byte> data, Deadline const& deadline);

template <class T>
std::span<std::byte const> bytesOf(T const& value) {
  return std::as_bytes(std::span<T const, 1>(&value, 1));
}
template <class T>
std::span<std::byte> writableBytesOf(T& value) {
  return std::as_writable_bytes(std::span<T, 1>(&value, 1));
}

}  // namespace mscclpp
