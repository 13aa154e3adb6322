// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/net/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/format.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

sockaddr_in& v4(SocketAddress& address) { return reinterpret_cast<sockaddr_in&>(address.storage); }
sockaddr_in const& v4(SocketAddress const& address) { return reinterpret_cast<sockaddr_in const&>(address.storage); }
sockaddr_in6& v6(SocketAddress& address) { return reinterpret_cast<sockaddr_in6&>(address.storage); }
sockaddr_in6 const& v6(SocketAddress const& address) { return reinterpret_cast<sockaddr_in6 const&>(address.storage); }

SocketAddress copyOf(sockaddr const* address) {
  SocketAddress result;
  result.length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&result.storage, address, result.length);
  return result;
}

FileHandle openSocket(int family) {
  auto socket = FileHandle::own([&] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (!socket) throwSystemError("open a TCP socket", errno);
  return socket;
}

// Ready, or past the deadline.
bool waitFor(int socket, short events, Deadline const& deadline) {
  for (;;) {
    pollfd entry{socket, events, 0};
    int const count = ::poll(&entry, 1, deadline.pollMilliseconds());
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return true;  // let the next call on the socket report it
    if (deadline.expired()) return false;
  }
}

bool isVirtual(std::string const& name) {
  for (char const* prefix : {"docker", "veth", "br-", "virbr", "cni", "flannel"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

std::uint16_t SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET ? v4(*this).sin_port : v6(*this).sin6_port);
}

void SocketAddress::setPort(std::uint16_t port) {
  if (storage.ss_family == AF_INET) {
    v4(*this).sin_port = htons(port);
  } else {
    v6(*this).sin6_port = htons(port);
  }
}

bool SocketAddress::isLoopback() const {
  if (storage.ss_family == AF_INET) return (ntohl(v4(*this).sin_addr.s_addr) >> 24) == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6(*this).sin6_addr) != 0;
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "?";
  void const* ip = storage.ss_family == AF_INET ? static_cast<void const*>(&v4(*this).sin_addr)
                                                : static_cast<void const*>(&v6(*this).sin6_addr);
  ::inet_ntop(storage.ss_family, ip, text, sizeof text);
  return text;
}

std::string SocketAddress::toString() const {
  return storage.ss_family == AF_INET ? fmt::format("{}:{}", host(), port()) : fmt::format("[{}]:{}", host(), port());
}

WireAddress toWire(SocketAddress const& address) {
  WireAddress wire{};
  wire.port = address.port();
  if (address.storage.ss_family == AF_INET) {
    wire.family = 4;
    std::memcpy(wire.ip.data(), &v4(address).sin_addr, 4);
  } else {
    wire.family = 6;
    std::memcpy(wire.ip.data(), &v6(address).sin6_addr, 16);
  }
  return wire;
}

std::optional<SocketAddress> fromWire(WireAddress const& wire) {
  SocketAddress address;
  if (wire.family == 4) {
    address.storage.ss_family = AF_INET;
    address.length = sizeof(sockaddr_in);
    std::memcpy(&v4(address).sin_addr, wire.ip.data(), 4);
  } else if (wire.family == 6) {
    address.storage.ss_family = AF_INET6;
    address.length = sizeof(sockaddr_in6);
    std::memcpy(&v6(address).sin6_addr, wire.ip.data(), 16);
  } else {
    return {};
  }
  address.setPort(wire.port);
  return address;
}

Endpoint parseEndpoint(std::string const& text) {
  auto const refuse = [&](std::string const& why) {
    fail(ErrorCode::invalidUsage, "address \"{}\": {}; use ip:port, [ipv6]:port, host:port or interface:ip:port", text,
         why);
  };
  Endpoint result;
  auto const lastColon = text.rfind(':');
  if (lastColon == std::string::npos || lastColon == 0) refuse("it has no port");
  std::string head = text.substr(0, lastColon);
  std::string const port = text.substr(lastColon + 1);
  std::int64_t number = -1;
  try {
    number = parseInteger("port", port, 0, 65535);
  } catch (Error const&) {
    refuse(fmt::format("\"{}\" is no port from 0 to 65535", port));
  }
  result.port = static_cast<std::uint16_t>(number);
  if (head.ends_with(']')) {
    auto const open = head.find('[');
    if (open == std::string::npos) refuse("its \"]\" has no \"[\"");
    result.host = head.substr(open + 1, head.size() - open - 2);
    if (open > 0) {
      if (head[open - 1] != ':') refuse("there must be a \":\" before \"[\"");
      result.interfaceName = head.substr(0, open - 1);
    }
  } else {
    auto const colon = head.find(':');
    if (colon != head.rfind(':')) refuse("an IPv6 address is written in brackets");
    result.host = colon == std::string::npos ? head : head.substr(colon + 1);
    if (colon != std::string::npos) result.interfaceName = head.substr(0, colon);
    if (colon == 0) refuse("the interface name is empty");
  }
  if (result.host.empty()) refuse("it names no host");
  return result;
}

bool isNumericAddress(std::string const& host) {
  in_addr a4{};
  in6_addr a6{};
  return ::inet_pton(AF_INET, host.c_str(), &a4) == 1 || ::inet_pton(AF_INET6, host.c_str(), &a6) == 1;
}

std::vector<SocketAddress> resolve(std::string const& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (isNumericAddress(host)) hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  int const status = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> const owner(list, ::freeaddrinfo);
  if (status != 0) {
    fail(ErrorCode::systemError,
         "host \"{}\" has no address: {}; give rank 0's address in numbers, or correct the name", host,
         ::gai_strerror(status));
  }
  std::vector<SocketAddress> result;
  for (addrinfo const* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    result.push_back(copyOf(entry->ai_addr));
    result.back().setPort(port);
  }
  if (result.empty()) fail(ErrorCode::systemError, "host \"{}\" has neither an IPv4 nor an IPv6 address", host);
  return result;
}

SocketAddress interfaceAddress(std::string const& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throwSystemError("list the network interfaces", errno);
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> const owner(list, ::freeifaddrs);
  ifaddrs const* best = nullptr;
  int bestScore = -1;
  std::vector<std::string> known;
  for (ifaddrs const* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    int const family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress const address = copyOf(entry->ifa_addr);
    // A link-local address means nothing to other hosts without the interface it belongs to.
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(address).sin6_addr)) continue;
    known.push_back(fmt::format("{} ({})", entry->ifa_name, address.host()));
    if (!name.empty() && name != entry->ifa_name) continue;
    int const score = ((entry->ifa_flags & IFF_LOOPBACK) == 0 ? 4 : 0) + (isVirtual(entry->ifa_name) ? 0 : 2) +
                      (family == AF_INET ? 1 : 0);
    if (score > bestScore) {
      best = entry;
      bestScore = score;
    }
  }
  if (best == nullptr) {
    fail(ErrorCode::invalidUsage, "no usable network interface \"{}\"; this host has: {}", name,
         fmt::join(known, ", "));
  }
  SocketAddress result = copyOf(best->ifa_addr);
  result.setPort(0);
  return result;
}

bool isOwnAddress(SocketAddress const& address) {
  SocketAddress probe = address;
  probe.setPort(0);
  auto const socket = FileHandle::own([&] { return ::socket(probe.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  return socket && ::bind(socket.get(), probe.get(), probe.length) == 0;
}

namespace {

void setOn(FileHandle const& socket, int option) {
  int const on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, option, &on, sizeof on);
}

[[noreturn]] void cannotListen(std::string const& purpose, SocketAddress const& address, int error) {
  char const* advice = "check the address and port";
  if (error == EADDRINUSE) advice = "another program, or another job, listens there: choose another port, or 0";
  if (error == EADDRNOTAVAIL) advice = "the address is not one of this host's: give rank 0's own address";
  if (error == EACCES) advice = "ports below 1024 need privileges: choose a higher one";
  throwSystemError(fmt::format("{}: cannot listen on {}; {}", purpose, address.toString(), advice), error);
}

FileHandle listenOn(std::string const& purpose, SocketAddress const& address, FileHandle socket) {
  // A port whose last connections are still closing may be used again at once.
  setOn(socket, SO_REUSEADDR);
  if (::bind(socket.get(), address.get(), address.length) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    cannotListen(purpose, address, errno);
  }
  return socket;
}

}  // namespace

FileHandle reservePort(std::string const& purpose, SocketAddress const& address) {
  FileHandle socket = openSocket(address.storage.ss_family);
  if (::bind(socket.get(), address.get(), address.length) != 0) cannotListen(purpose, address, errno);
  // Only now, or the port could be one that is reserved already.
  setOn(socket, SO_REUSEPORT);
  return socket;
}

FileHandle listenOnReserved(std::string const& purpose, SocketAddress const& address) {
  // Two could listen beside each other, and each get some of the connections.
  int error = 0;
  if (connectTo(address, Deadline(std::chrono::seconds(1)), error)) cannotListen(purpose, address, EADDRINUSE);
  FileHandle socket = openSocket(address.storage.ss_family);
  setOn(socket, SO_REUSEPORT);
  return listenOn(purpose, address, std::move(socket));
}

FileHandle listenOn(std::string const& purpose, SocketAddress const& address) {
  return listenOn(purpose, address, openSocket(address.storage.ss_family));
}

FileHandle listenOnAll(std::string const& purpose, std::uint16_t port) {
  SocketAddress address;
  address.storage.ss_family = AF_INET6;  // all zero is "any address"
  address.length = sizeof(sockaddr_in6);
  if (isOwnAddress(address)) {
    FileHandle socket = openSocket(AF_INET6);
    int const off = 0;
    if (::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) {
      address.setPort(port);
      return listenOn(purpose, address, std::move(socket));
    }
  }
  address.storage.ss_family = AF_INET;
  address.length = sizeof(sockaddr_in);
  address.setPort(port);
  return listenOn(purpose, address);
}

bool wouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

FileHandle acceptFrom(int listener) {
  return FileHandle::own([&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
}

SocketAddress localAddress(int socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throwSystemError("read a socket's own address", errno);
  }
  return address;
}

SocketAddress remoteAddress(int socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throwSystemError("read the address of a socket's peer", errno);
  }
  return address;
}

FileHandle connectTo(SocketAddress const& address, Deadline const& deadline, int& error) {
  FileHandle socket = openSocket(address.storage.ss_family);
  // Messages are small and somebody waits for each.
  int const on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  error = 0;
  if (::connect(socket.get(), address.get(), address.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    error = errno;
    return {};
  }
  if (!waitFor(socket.get(), POLLOUT, deadline)) {
    error = ETIMEDOUT;
    return {};
  }
  socklen_t length = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return {};
  // A port of this host may be given to the connecting end itself, which then meets itself.
  SocketAddress const own = localAddress(socket.get());
  if (own.length == address.length && own.port() == address.port() && own.host() == address.host()) {
    error = ECONNREFUSED;
    return {};
  }
  return socket;
}

int sendAll(int socket, std::span<std::byte const> data, Deadline const& deadline) {
  while (!data.empty()) {
    auto const sent = ::send(socket, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      data = data.subspan(static_cast<std::size_t>(sent));
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!waitFor(socket, POLLOUT, deadline)) return ETIMEDOUT;
    } else if (sent < 0 && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

int recvAll(int socket, std::span<std::byte> data, Deadline const& deadline) {
  while (!data.empty()) {
    auto const got = ::recv(socket, data.data(), data.size(), 0);
    if (got > 0) {
      data = data.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return ECONNRESET;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!waitFor(socket, POLLIN, deadline)) return ETIMEDOUT;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace mscclpp
