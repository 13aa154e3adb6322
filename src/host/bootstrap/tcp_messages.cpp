// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <thread>

#include "base/format.hpp"
#include "host/bootstrap/tcp_impl.hpp"
#include "host/net/host_identity.hpp"

namespace mscclpp {
namespace {

// No message of anybody has it.
constexpr std::int32_t newsTag = std::numeric_limits<std::int32_t>::min();
// A connection may break some time before its thread says why.
constexpr std::chrono::nanoseconds explanationTime = std::chrono::milliseconds(300);

struct NewsBody {
  std::int32_t rank;
  RankNews::Kind kind;
  std::int32_t cause;
  std::int32_t reserved;
};

std::vector<std::byte> frameOf(RankNews const& news) {
  NewsBody const body{news.rank, news.kind, news.cause, 0};
  FrameHeader const header{frameMagic, newsTag, 0, sizeof body + news.reason.size()};
  std::vector<std::byte> frame;
  auto const text = std::as_bytes(std::span(news.reason));
  for (auto const part : {bytesOf(header), bytesOf(body), text}) frame.insert(frame.end(), part.begin(), part.end());
  return frame;
}

std::optional<RankNews> newsOf(std::span<std::byte const> payload, int ranks) {
  NewsBody body{};
  if (payload.size() < sizeof body) return {};
  std::memcpy(&body, payload.data(), sizeof body);
  bool const right = body.rank >= 0 && body.rank < ranks && body.cause < ranks && body.kind >= RankNews::Kind::left &&
                     body.kind <= RankNews::Kind::failed;
  if (!right) return {};
  auto const text = payload.subspan(sizeof body);
  RankNews news{body.rank, body.kind, body.cause, std::string(text.size(), ' ')};
  if (!text.empty()) std::memcpy(news.reason.data(), text.data(), text.size());
  return news;
}

}  // namespace

std::vector<std::byte> TcpBootstrap::Impl::farewell() const {
  return frameOf({rank_, RankNews::Kind::left, mailbox_.blamed(), "it has ended its bootstrap"});
}

TcpBootstrap::Impl::~Impl() {
  atExit_.reset();
  // In this order: one that is killed in between has died for all; and the watch uses the server.
  std::unique_ptr<DeathWatch> watch;
  {
    std::lock_guard const lock(mutex_);
    watch = std::move(watch_);
  }
  watch.reset();
  if (server_) server_->leave(farewell());
}

void TcpBootstrap::Impl::declareLost(std::string const& reason) {
  // In a child of fork() CUDA's calls fail, which is nobody's loss.
  if (server_ && process_) server_->tell(frameOf({rank_, RankNews::Kind::died, -1, reason}));
}

void TcpBootstrap::Impl::send(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes) {
  requireInitialized("send");
  int const peer = to.peer;
  if (bytes > longestMessage) {
    fail(ErrorCode::invalidUsage, "rank {}: send of {} bytes to rank {} (tag {}); the bootstrap carries at most {}",
         rank_, bytes, peer, to.tag, longestMessage);
  }
  auto const* first = static_cast<std::byte const*>(data);
  if (peer == rank_) {
    return mailbox_.push({to.context, rank_, to.tag}, std::vector<std::byte>(first, first + bytes));
  }
  auto const what = fmt::format("rank {}: cannot send {} bytes to rank {} (tag {})", rank_, bytes, peer, to.tag);
  mailbox_.requirePresent(to, wait, what);
  auto const limit = std::min(timeout_, wait.limit);
  Deadline const deadline(limit);
  auto const connection = connectionTo(to, wait, deadline);
  int const error = connection->send({frameMagic, to.tag, to.context, bytes}, {first, bytes}, deadline);
  if (error == 0) return;
  ::shutdown(connection->socket.get(), SHUT_RDWR);
  if (error == ETIMEDOUT) {
    fail(ErrorCode::timeout,
         "rank {}: sending {} bytes to rank {} (tag {}) was not done after {}; does rank {} run, and the network "
         "between? MSCCLPP_TIMEOUT sets the limit",
         rank_, bytes, peer, to.tag, describe(limit), peer);
  }
  explain(to, wait, what);
  fail(ErrorCode::remoteError, "{}: {}; see that rank's output", what, std::strerror(error));
}

std::vector<std::byte> TcpBootstrap::Impl::recv(MessageAddress const& from, MessageWait const& wait) {
  requireInitialized("recv");
  return mailbox_.take(from, wait);
}

void TcpBootstrap::Impl::send(int peer, int tag, void const* data, std::size_t bytes) {
  send({0, peer, tag}, {timeout_, everyone_, false}, data, bytes);
}

void TcpBootstrap::Impl::startServer(FileHandle listener, Key128 const& key) {
  TcpServer::Events events;
  events.decide = [this](Hello const& hello) { return decide(hello); };
  events.admitted = [this](std::shared_ptr<PeerSocket> connection, Hello const& hello) {
    admit(std::move(connection), hello);
  };
  events.message = [this](FrameHeader const& header, int from, std::vector<std::byte> message) {
    if (header.tag == newsTag) return hear(from, message);
    mailbox_.push({header.context, from, header.tag}, std::move(message));
  };
  events.lost = [this](int from, std::string const& reason) { lose(from, reason); };
  events.unconfirmed = [this](int from) { mailbox_.loseEnded(from); };
  server_ = std::make_unique<TcpServer>(rank_, ranks_, std::move(listener), key, std::move(events));
  server_->start();
}

Admission TcpBootstrap::Impl::decide(Hello const& hello) {
  if (hello.ranks != ranks_) return Admission::wrongRanks;
  if (hello.rank < 0 || hello.rank >= ranks_ || hello.rank == rank_) return Admission::rankOutOfRange;
  if (hello.purpose != (rank_ == 0 ? Purpose::join : Purpose::peer)) return Admission::wrongPurpose;
  std::lock_guard const lock(mutex_);
  return peer(hello.rank).inbound ? Admission::rankTaken : Admission::admitted;
}

void TcpBootstrap::Impl::admit(std::shared_ptr<PeerSocket> connection, Hello const& hello) {
  {
    std::lock_guard const lock(mutex_);
    Peer& from = peer(hello.rank);
    from.inbound = connection;
    if (!from.connection) from.connection = std::move(connection);
    if (rank_ == 0) entry(hello.rank) = {hello.listener, 0, hello.hostIdentity};
  }
  joined_.notify_all();
}

void TcpBootstrap::Impl::lose(int from, std::string const& reason) {
  RankNews news{from, RankNews::Kind::died, -1, reason};
  {
    std::lock_guard const lock(mutex_);
    if (auto const said = farewells_.find(from); said != farewells_.end()) news = said->second;
    if (rank_ == 0 && !complete_) {
      // It may come again, for instance after a connection that broke. Nothing of it is for its successor.
      log(LogLevel::warn, "rank 0: rank {} left while the ranks were joining: {}", from, news.reason);
      peer(from).inbound.reset();
      peer(from).connection.reset();
      farewells_.erase(from);
      mailbox_.forget(from);
      return;
    }
  }
  // The others first: what follows may make this rank give up and leave.
  spread(news);
  mailbox_.lose(news);
}

void TcpBootstrap::Impl::hear(int from, std::vector<std::byte> const& payload) {
  auto const news = newsOf(payload, ranks_);
  if (!news || news->rank == rank_) return;
  if (news->rank == from && news->kind == RankNews::Kind::left) {
    // Holds when its connections have ended: until then there may be messages in them.
    std::lock_guard const lock(mutex_);
    farewells_.emplace(from, *news);
    return;
  }
  learn(*news);
  // It has declared itself lost, so nothing else will come.
  if (news->rank == from && news->kind == RankNews::Kind::died) mailbox_.lose(*news);
}

void TcpBootstrap::Impl::learn(RankNews const& news) {
  spread(news);
  // Where there is a connection, its own end tells, after the last message.
  if (news.kind != RankNews::Kind::failed && !server_->connectedTo(news.rank)) mailbox_.lose(news);
}

void TcpBootstrap::Impl::spread(RankNews const& news) {
  // Connections and the watch may tell at once; nobody shall hear in another order than this rank has.
  std::unique_lock order(spreading_, std::defer_lock);
  if (news.kind != RankNews::Kind::failed) order.lock();
  if (!mailbox_.tell(news)) return;
  if (news.kind == RankNews::Kind::died) {
    std::lock_guard const lock(mutex_);
    if (watch_) watch_->record(news.rank);
  }
  if (server_) server_->tell(frameOf(news));
  if (news.kind == RankNews::Kind::died) deaths_.tell(news.rank, news.reason);
}

void TcpBootstrap::Impl::explain(MessageAddress const& to, MessageWait const& wait, std::string const& what) {
  for (Deadline const deadline(explanationTime); !deadline.expired();) {
    mailbox_.requirePresent(to, wait, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::shared_ptr<PeerSocket> TcpBootstrap::Impl::connectionTo(MessageAddress const& address, MessageWait const& wait,
                                                             Deadline const& deadline) {
  int const to = address.peer;
  // One connection attempt per peer at a time; other peers are not held up.
  std::lock_guard const connecting(peer(to).connecting);
  {
    std::lock_guard const lock(mutex_);
    if (peer(to).connection) return peer(to).connection;
  }
  auto const where = fromWire(entry(to).listener);
  if (!where) fail(ErrorCode::remoteError, "rank {}: rank {} told no usable address", rank_, to);
  auto const what = fmt::format("rank {}: cannot connect to rank {} at {}", rank_, to, where->toString());
  int error = 0;
  FileHandle socket = connectTo(*where, deadline, error);
  if (!socket) {
    if (error != ETIMEDOUT) explain(address, wait, what);
    fail(error == ETIMEDOUT ? ErrorCode::timeout : ErrorCode::remoteError,
         "{}: {}; does rank {} still run, and do the hosts reach each other on this network (MSCCLPP_SOCKET_IFNAME "
         "chooses another)?",
         what, std::strerror(error), to);
  }
  Hello hello{};
  hello.purpose = Purpose::peer;
  hello.rank = rank_;
  hello.ranks = ranks_;
  hello.hostIdentity = hostIdentity();
  HandshakeResult const result = introduce(socket.get(), session_, hello, deadline);
  if (result.kind != HandshakeResult::Kind::admitted) {
    if (!deadline.expired()) explain(address, wait, what);
    fail(deadline.expired() ? ErrorCode::timeout : ErrorCode::remoteError,
         "rank {}: rank {} at {} did not take this rank's connection within {}: {}", rank_, to, where->toString(),
         describe(deadline.limit()), result.reason);
  }
  auto connection = std::make_shared<PeerSocket>(std::move(socket), to, true);
  server_->add(connection);
  std::lock_guard const lock(mutex_);
  if (!peer(to).connection) peer(to).connection = std::move(connection);
  return peer(to).connection;
}

}  // namespace mscclpp
