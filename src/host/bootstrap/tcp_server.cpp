// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/tcp_server.hpp"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "base/own_thread.hpp"

namespace mscclpp {
namespace {

// For those that do not read what they are sent.
constexpr std::chrono::nanoseconds farewellLimit = std::chrono::milliseconds(200);

// How soon those are tried again that had no room for a notice, in milliseconds.
constexpr int noticePause = 5;

constexpr std::size_t firstRoom = std::size_t{64} << 10;

}  // namespace

// A candidate that has been told to go on, so that its peer takes it for a connection.
class TcpServer::Admitted {
 public:
  Admitted(TcpServer& server, int peer) : server_(server), peer_(peer) {
    std::lock_guard const lock(server_.mutex_);
    server_.admitted_.push_back(peer);
  }
  ~Admitted() {
    {
      std::lock_guard const lock(server_.mutex_);
      auto& all = server_.admitted_;
      all.erase(std::find(all.begin(), all.end(), peer_));
      if (server_.hasConnection(peer_)) return;
    }
    if (server_.events_.unconfirmed) server_.events_.unconfirmed(peer_);
  }
  Admitted(Admitted const&) = delete;
  Admitted& operator=(Admitted const&) = delete;

 private:
  TcpServer& server_;
  int peer_;
};

struct TcpServer::Candidate {
  Candidate(FileHandle handle, std::string address)
      : socket(std::move(handle)), from(std::move(address)), greeting(makeGreeting()), deadline(examinationLimit) {}

  FileHandle socket;
  std::string from;
  Greeting greeting;
  Hello hello{};
  std::uint64_t confirmation = 0;
  std::size_t filled = 0;  // of the hello, then of the confirmation
  std::unique_ptr<Admitted> admitted{};
  Deadline deadline;
};

TcpServer::TcpServer(int rank, int ranks, FileHandle listener, Key128 key, Events events)
    : rank_(rank),
      ranks_(ranks),
      listener_(std::move(listener)),
      key_(key),
      events_(std::move(events)),
      wake_(FileHandle::own([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
  if (!wake_) throwSystemError(fmt::format("rank {}: make an event for the bootstrap", rank_), errno);
}

void TcpServer::start() {
  thread_ = startOwnThread([this] { run(); });
}

TcpServer::~TcpServer() { leave({}); }

void TcpServer::wake() {
  std::uint64_t const one = 1;
  [[maybe_unused]] auto const written = ::write(wake_.get(), &one, sizeof one);
}

void TcpServer::leave(std::vector<std::byte> const& frame) {
  if (!thread_.joinable()) return;
  stop_ = true;
  wake();
  thread_.join();
  candidates_.clear();
  Deadline const deadline(farewellLimit);
  for (auto const& connection : connections_) {
    connection->notify(frame);
    connection->flush(deadline);
    // End of file first: closing with unread input would reset the connection and lose what the peer has yet to read.
    ::shutdown(connection->socket.get(), SHUT_WR);
    std::byte rest[4096];
    while (::recv(connection->socket.get(), rest, sizeof rest, 0) > 0) {
    }
  }
}

void TcpServer::adopt(std::shared_ptr<PeerSocket> connection) {
  connection->notify(told_);
  connection->flush();
  connections_.push_back(std::move(connection));
}

void TcpServer::add(std::shared_ptr<PeerSocket> connection) {
  {
    std::lock_guard const lock(mutex_);
    adopt(std::move(connection));
  }
  wake();
}

bool TcpServer::hasConnection(int peer) const {
  return std::any_of(connections_.begin(), connections_.end(), [&](auto const& one) { return one->peer == peer; });
}

bool TcpServer::connectedTo(int peer) {
  std::lock_guard const lock(mutex_);
  return hasConnection(peer) || std::find(admitted_.begin(), admitted_.end(), peer) != admitted_.end();
}

void TcpServer::tell(std::vector<std::byte> const& frame) {
  bool all = true;
  {
    std::lock_guard const lock(mutex_);
    told_.insert(told_.end(), frame.begin(), frame.end());
    for (auto const& connection : connections_) {
      connection->notify(frame);
      all = connection->flush() && all;
    }
  }
  if (!all) wake();
}

bool TcpServer::flushNotices() {
  std::lock_guard const lock(mutex_);
  bool all = true;
  for (auto const& connection : connections_) all = connection->flush() && all;
  return all;
}

void TcpServer::accept() {
  // A few at a time, so that those already here are examined in between.
  for (int count = 0; count < 64; ++count) {
    FileHandle socket = acceptFrom(listener_.get());
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        crowded_ = true;
        refusals_.log(LogLevel::warn,
                      "rank {}: no room for a new bootstrap connection: {}; raise the open file limit (ulimit -n)",
                      rank_, std::strerror(errno));
        if (!candidates_.empty()) candidates_.pop_front();
      }
      return;
    }
    int const on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::string from = "?";
    try {
      from = remoteAddress(socket.get()).toString();
    } catch (Error const&) {
      continue;  // it is gone already
    }
    if (candidates_.size() >= mostCandidates) {
      refusals_.log(LogLevel::warn, "rank {}: refused {}: too many connections that do not introduce themselves", rank_,
                    candidates_.front().from);
      candidates_.pop_front();
    }
    candidates_.emplace_back(std::move(socket), std::move(from));
    // A fresh socket has room for 32 bytes; one that has not is no use.
    Candidate const& candidate = candidates_.back();
    auto const sent = ::send(candidate.socket.get(), &candidate.greeting, sizeof(Greeting), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(sizeof(Greeting))) candidates_.pop_back();
  }
}

bool TcpServer::examine(Candidate& candidate) {
  if (candidate.admitted != nullptr) return confirm(candidate);
  auto const room = writableBytesOf(candidate.hello).subspan(candidate.filled);
  auto const got = ::recv(candidate.socket.get(), room.data(), room.size(), 0);
  if (got < 0 && wouldBlock(errno)) return true;
  if (got <= 0) {
    refusals_.log(LogLevel::warn, "rank {}: {} connected and left without introducing itself", rank_, candidate.from);
    return false;
  }
  candidate.filled += static_cast<std::size_t>(got);
  Hello const& hello = candidate.hello;
  // The first bytes are enough to tell a stranger.
  std::size_t const known = std::min(candidate.filled, sizeof hello.magic);
  if (std::memcmp(&hello.magic, &wireMagic, known) != 0) {
    refusals_.log(LogLevel::warn, "rank {}: refused {}: it does not speak the bootstrap's language", rank_,
                  candidate.from);
    return false;
  }
  if (candidate.filled < sizeof hello) return true;
  Admission admission = Admission::wrongSecret;
  if (hello.version == wireVersion && proves(key_, candidate.greeting, hello)) admission = events_.decide(hello);
  Verdict const verdict = makeVerdict(key_, hello, admission, ranks_);
  // Before the peer knows: it may send at once, and be killed.
  if (admission == Admission::admitted) candidate.admitted = std::make_unique<Admitted>(*this, hello.rank);
  auto const sent = ::send(candidate.socket.get(), &verdict, sizeof verdict, MSG_NOSIGNAL);
  if (admission != Admission::admitted) {
    refusals_.log(LogLevel::warn, "rank {}: refused {}, which says it is rank {} of {}: {}", rank_, candidate.from,
                  hello.rank, hello.ranks, nameOf(admission));
  } else if (sent == static_cast<ssize_t>(sizeof verdict)) {
    candidate.filled = 0;
    return true;
  }
  return false;
}

bool TcpServer::confirm(Candidate& candidate) {
  auto const room = writableBytesOf(candidate.confirmation).subspan(candidate.filled);
  auto const got = ::recv(candidate.socket.get(), room.data(), room.size(), 0);
  if (got < 0 && wouldBlock(errno)) return true;
  if (got > 0) candidate.filled += static_cast<std::size_t>(got);
  if (got > 0 && candidate.filled < sizeof candidate.confirmation) return true;
  Hello const& hello = candidate.hello;
  // Another connection of that rank may have been confirmed meanwhile.
  if (got <= 0 || candidate.confirmation != wireMagic || events_.decide(hello) != Admission::admitted) {
    log(LogLevel::info, "rank {}: rank {} gave up a connection to here", rank_, hello.rank);
    return false;
  }
  // Those that join get the table of rank 0 first.
  auto connection = std::make_shared<PeerSocket>(std::move(candidate.socket), hello.rank, rank_ != 0);
  events_.admitted(connection, hello);
  std::lock_guard const lock(mutex_);
  adopt(std::move(connection));
  return false;
}

bool TcpServer::read(PeerSocket& connection, std::string& reason) {
  for (;;) {
    bool const inHeader = connection.filled < sizeof(FrameHeader);
    auto const target = inHeader
                            ? writableBytesOf(connection.header).subspan(connection.filled)
                            : std::span<std::byte>(connection.payload).subspan(connection.filled - sizeof(FrameHeader));
    if (!target.empty()) {
      auto const got = ::recv(connection.socket.get(), target.data(), target.size(), 0);
      if (got < 0 && wouldBlock(errno)) return true;
      if (got <= 0) {
        if (got < 0) {
          reason = fmt::format("its connection failed: {}", std::strerror(errno));
        } else {
          reason = connection.filled == 0 ? "it closed its connection" : "it closed its connection within a message";
        }
        return false;
      }
      connection.filled += static_cast<std::size_t>(got);
    }
    if (connection.filled < sizeof(FrameHeader)) continue;
    if (inHeader) {
      if (connection.header.magic != frameMagic || connection.header.bytes > longestMessage) {
        reason = "it sent what is no message of the bootstrap";
        return false;
      }
    }
    std::size_t const received = connection.filled - sizeof(FrameHeader);
    if (received < connection.header.bytes && received == connection.payload.size()) {
      // Grows with what came: a header alone must not cost its sender's claim of memory.
      connection.payload.resize(std::min<std::uint64_t>(connection.header.bytes, std::max(firstRoom, 2 * received)));
    }
    if (received == connection.header.bytes) {
      events_.message(connection.header, connection.peer, std::move(connection.payload));
      connection.payload = {};
      connection.filled = 0;
    }
  }
}

void TcpServer::drop(std::shared_ptr<PeerSocket> const& connection, std::string const& reason) {
  ::shutdown(connection->socket.get(), SHUT_RDWR);  // a sender that still holds it gets EPIPE
  bool last = false;
  {
    std::lock_guard const lock(mutex_);
    std::erase(connections_, connection);
    last = !hasConnection(connection->peer);
  }
  if (last) events_.lost(connection->peer, reason);
}

void TcpServer::run() {
  setLogRank(rank_);
  std::vector<pollfd> entries;
  while (!stop_) {
    std::vector<std::shared_ptr<PeerSocket>> readable;  // events below may add and remove
    {
      std::lock_guard const lock(mutex_);
      readable = connections_;
    }
    entries.clear();
    entries.push_back({wake_.get(), POLLIN, 0});
    // While descriptors are short, the listener would only wake this thread for nothing.
    entries.push_back({crowded_ ? -1 : listener_.get(), POLLIN, 0});
    for (auto const& candidate : candidates_) entries.push_back({candidate.socket.get(), POLLIN, 0});
    for (auto const& connection : readable) entries.push_back({connection->socket.get(), POLLIN, 0});
    int limit = crowded_ ? 50 : -1;
    if (!crowded_ && !candidates_.empty()) limit = candidates_.front().deadline.pollMilliseconds();
    crowded_ = false;
    if (!flushNotices()) limit = noticePause;
    if (::poll(entries.data(), entries.size(), limit) < 0) {
      if (errno == EINTR || errno == EAGAIN || errno == ENOMEM) continue;
      log(LogLevel::error, "rank {}: the bootstrap's poll failed: {}", rank_, std::strerror(errno));
      return;
    }
    try {
      std::uint64_t ignored = 0;
      if (entries[0].revents != 0) {
        [[maybe_unused]] auto const got = ::read(wake_.get(), &ignored, sizeof ignored);
      }
      std::size_t at = 2;
      for (auto candidate = candidates_.begin(); candidate != candidates_.end(); ++at) {
        bool keep = true;
        if (entries[at].revents != 0) {
          keep = examine(*candidate);
        } else if (candidate->deadline.expired()) {
          refusals_.log(LogLevel::warn, "rank {}: refused {}: it did not introduce itself within {}", rank_,
                        candidate->from, describe(examinationLimit));
          keep = false;
        }
        candidate = keep ? std::next(candidate) : candidates_.erase(candidate);
      }
      for (auto const& connection : readable) {
        if (entries[at++].revents == 0) continue;
        std::string reason;
        if (!read(*connection, reason)) drop(connection, reason);
      }
      if (entries[1].revents != 0) accept();
    } catch (std::exception const& error) {
      // Out of memory or of randomness: the message at hand is lost, which its receiver's time limit will tell.
      refusals_.log(LogLevel::error, "rank {}: bootstrap: {}", rank_, error.what());
    }
  }
}

}  // namespace mscclpp
