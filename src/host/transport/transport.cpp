// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/transport.hpp"

#include <ctime>

#include "base/format.hpp"

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
bool Connection::waitsFor(std::vector<pollfd>&) const { return false; }
void Connection::abandon(RegisteredMemory const&, std::uint64_t) noexcept {}

bool restUntilReady(std::span<Connection const* const> connections, std::chrono::nanoseconds limit) {
  std::vector<pollfd> sockets;
  for (auto const* connection : connections) {
    if (!connection->waitsFor(sockets)) return false;
  }
  if (sockets.empty()) return false;
  auto const seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  timespec const time{seconds.count(), (limit - seconds).count()};
  ::ppoll(sockets.data(), sockets.size(), &time, nullptr);  // what fails there shows in the next step
  return true;
}

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

}  // namespace mscclpp
