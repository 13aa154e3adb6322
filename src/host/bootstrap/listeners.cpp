// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/listeners.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/format.hpp"
#include "base/keyed_hash.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {
namespace {

constexpr std::size_t mostUnused = 64;

struct Unused {
  std::mutex mutex;
  std::deque<std::pair<UniqueId::Secret, FileHandle>> ports;  // the oldest first

  static Unused& instance() {
    static Unused unused;
    return unused;
  }
};

bool isLoopbackName(std::string const& host) {
  constexpr std::array names{"localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"};
  return std::find(names.begin(), names.end(), host) != names.end() || host.ends_with(".localhost");
}

}  // namespace

void keepPort(UniqueId::Secret const& secret, FileHandle socket) {
  auto& unused = Unused::instance();
  std::lock_guard const lock(unused.mutex);
  if (unused.ports.size() == mostUnused) {
    log(LogLevel::warn,
        "createUniqueId: {} ids of this process were not used; the port of the oldest is given up, so that another "
        "program may take it",
        mostUnused);
    unused.ports.pop_front();
  }
  unused.ports.emplace_back(secret, FileHandle(socket.release()));
}

FileHandle takePort(UniqueId::Secret const& secret) {
  auto& unused = Unused::instance();
  std::lock_guard const lock(unused.mutex);
  auto const found =
      std::find_if(unused.ports.begin(), unused.ports.end(), [&](auto const& entry) { return entry.first == secret; });
  if (found == unused.ports.end()) return {};
  auto socket = FileHandle::own([&] { return found->second.release(); });
  unused.ports.erase(found);
  if (::listen(socket.get(), SOMAXCONN) != 0) throwSystemError("listen on the port of a unique id", errno);
  return socket;
}

FileHandle listenFor(std::string const& purpose, std::string const& host, std::vector<SocketAddress> const& addresses) {
  if (isNumericAddress(host)) return listenOn(purpose, addresses.front());
  for (auto const& address : addresses) {
    if (address.isLoopback() == isLoopbackName(host) && isOwnAddress(address)) return listenOn(purpose, address);
  }
  return listenOnAll(purpose, addresses.front().port());
}

Key128 secretOf(std::string const& text) {
  Key128 key{};
  if (text.empty()) return key;
  auto const bytes = std::as_bytes(std::span(text));
  auto const halves = std::array{keyedHash(Key128{1}, bytes), keyedHash(Key128{2}, bytes)};
  static_assert(sizeof halves == sizeof key);
  std::memcpy(key.data(), halves.data(), sizeof key);
  return key;
}

}  // namespace mscclpp
