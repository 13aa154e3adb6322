// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/format.hpp"
#include "base/own_thread.hpp"
#include "host/bootstrap/listeners.hpp"
#include "host/bootstrap/mailbox.hpp"
#include "host/bootstrap/tcp_join.hpp"
#include "host/bootstrap/tcp_server.hpp"
#include "host/net/host_identity.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

// Rank 0 has a socket for each; a machine's ports and descriptors end far before this.
constexpr int mostRanks = 1 << 16;
// No message of anybody has it.
constexpr std::int32_t newsTag = std::numeric_limits<std::int32_t>::min();
// A connection may break some time before its thread says why.
constexpr std::chrono::nanoseconds explanationTime = std::chrono::milliseconds(300);
// A first connection is made for the sake of news alone: others may be without it.
constexpr std::chrono::nanoseconds meshTime = std::chrono::seconds(3);

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

Key128 combine(Key128 a, Key128 const& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint8_t>(a[i] ^ b[i]);
  return a;
}

}  // namespace

class TcpBootstrap::Impl {
 public:
  Impl(int rank, int ranks)
      : rank_(rank),
        ranks_(checked(rank, ranks)),
        mailbox_(rank, [this](RankNews const& news) { spread(news); }),
        peers_(static_cast<std::size_t>(ranks)) {
    everyone_.resize(static_cast<std::size_t>(ranks));
    std::iota(everyone_.begin(), everyone_.end(), 0);
  }
  ~Impl() {
    if (!server_) return;
    server_->leave(frameOf({rank_, RankNews::Kind::left, mailbox_.blamed(), "it has ended its bootstrap"}));
  }

  void initialize(UniqueId const& id, std::optional<std::chrono::nanoseconds> timeout) {
    begin(timeout);
    if (id.port() == 0) {
      fail(ErrorCode::invalidUsage, "rank {}: initialize with an empty unique id; take rank 0's createUniqueId()",
           rank_);
    }
    Deadline const deadline(timeout_);
    auto const addresses = resolve(id.host(), id.port());
    if (rank_ == 0) {
      FileHandle listener = takeListener(id.secret());
      if (!listener) {
        listener = listenOn(fmt::format("rank 0: initialize with a unique id that was not made in this process, or was "
                                        "used before (each id serves one initialize)"),
                            addresses.front());
      }
      gather(std::move(listener), id.secret(), deadline);
    } else {
      join(addresses, environment().socketInterface, id.secret(), deadline);
    }
    initialized_ = true;
  }

  void initialize(std::string const& text, std::optional<std::chrono::nanoseconds> timeout) {
    begin(timeout);
    Endpoint const endpoint = parseEndpoint(text);
    if (endpoint.port == 0) {
      fail(ErrorCode::invalidUsage,
           "rank {}: initialize(\"{}\"): port 0 tells the other ranks nothing; name one port, or use createUniqueId()",
           rank_, text);
    }
    Deadline const deadline(timeout_);
    if (!endpoint.interfaceName.empty()) interfaceAddress(endpoint.interfaceName);  // must exist, on every rank
    auto const addresses = resolve(endpoint.host, endpoint.port);
    auto const secret = secretOf(environment().secret);
    if (rank_ == 0) {
      auto listener = listenFor(fmt::format("rank 0: initialize(\"{}\")", text), endpoint.host, addresses);
      if (auto const at = localAddress(listener.get());
          environment().secret.empty() && !at.isLoopback() && ranks_ > 1) {
        log(LogLevel::warn,
            "rank 0: listens on {} without a secret: whoever reaches that port first can join as a rank; set "
            "MSCCLPP_SECRET to the same random text on every rank, or use a unique id",
            at.toString());
      }
      gather(std::move(listener), secret, deadline);
    } else {
      join(addresses, endpoint.interfaceName.empty() ? environment().socketInterface : endpoint.interfaceName, secret,
           deadline);
    }
    initialized_ = true;
  }

  void requireInitialized(std::string_view operation) const {
    if (!initialized_) {
      fail(ErrorCode::invalidUsage, "rank {}: {} before initialize; call initialize on every rank first", rank_,
           operation);
    }
  }

  OwnProcess process() const { return process_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::chrono::nanoseconds timeout() const { return timeout_; }

  int ranksPerNode() const {
    requireInitialized("getNranksPerNode");
    auto const own = hostIdentity();
    return static_cast<int>(std::count_if(table_.begin(), table_.end(),
                                          [own](TableEntry const& entry) { return entry.hostIdentity == own; }));
  }

  void send(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes) {
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
    Deadline const deadline(timeout_);
    auto const connection = connectionTo(to, wait, deadline);
    int const error = connection->send({frameMagic, to.tag, to.context, bytes}, {first, bytes}, deadline);
    if (error == 0) return;
    ::shutdown(connection->socket.get(), SHUT_RDWR);
    if (error == ETIMEDOUT) {
      fail(ErrorCode::timeout,
           "rank {}: sending {} bytes to rank {} (tag {}) was not done after {}; does rank {} run, and the network "
           "between? MSCCLPP_TIMEOUT sets the limit",
           rank_, bytes, peer, to.tag, describe(timeout_), peer);
    }
    explain(to, wait, what);
    fail(ErrorCode::remoteError, "{}: {}; see that rank's output", what, std::strerror(error));
  }

  std::vector<std::byte> recv(MessageAddress const& from, MessageWait const& wait) {
    requireInitialized("recv");
    return mailbox_.take(from, wait);
  }
  void send(int peer, int tag, void const* data, std::size_t bytes) {
    send({0, peer, tag}, {timeout_, everyone_, false}, data, bytes);
  }
  std::vector<std::byte> recv(int peer, int tag) { return recv({0, peer, tag}, {timeout_, everyone_, false}); }

 private:
  struct Peer {
    std::mutex connecting;
    std::shared_ptr<PeerSocket> connection;  // that this rank sends on; set once; guarded by mutex_
    std::shared_ptr<PeerSocket> inbound;     // that the peer opened; guarded by mutex_
  };
  static int checked(int rank, int ranks) {
    if (ranks < 1 || ranks > mostRanks) {
      fail(ErrorCode::invalidUsage, "TcpBootstrap: {} ranks given, allowed are 1 to {}", ranks, mostRanks);
    }
    if (rank < 0 || rank >= ranks) {
      fail(ErrorCode::invalidUsage, "TcpBootstrap: rank {} given, but with {} ranks they are 0 to {}", rank, ranks,
           ranks - 1);
    }
    return ranks;
  }
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  TableEntry& entry(int rank) { return table_[static_cast<std::size_t>(rank)]; }

  void begin(std::optional<std::chrono::nanoseconds> timeout) {
    if (begun_) {
      fail(ErrorCode::invalidUsage,
           "rank {}: second initialize of one TcpBootstrap; make a new TcpBootstrap with a new unique id", rank_);
    }
    timeout_ = timeout.value_or(environment().timeout);
    if (timeout_ <= std::chrono::nanoseconds::zero()) {
      fail(ErrorCode::invalidUsage, "rank {}: initialize with a time limit of {} ns; it must be more than 0", rank_,
           timeout_.count());
    }
    begun_ = true;
  }

  void startServer(FileHandle listener, Key128 const& key) {
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
    server_ = std::make_unique<TcpServer>(rank_, ranks_, std::move(listener), key, std::move(events));
    server_->start();
  }

  Admission decide(Hello const& hello) {
    if (hello.ranks != ranks_) return Admission::wrongRanks;
    if (hello.rank < 0 || hello.rank >= ranks_ || hello.rank == rank_) return Admission::rankOutOfRange;
    if (hello.purpose != (rank_ == 0 ? Purpose::join : Purpose::peer)) return Admission::wrongPurpose;
    std::lock_guard const lock(mutex_);
    return peer(hello.rank).inbound ? Admission::rankTaken : Admission::admitted;
  }

  void admit(std::shared_ptr<PeerSocket> connection, Hello const& hello) {
    {
      std::lock_guard const lock(mutex_);
      Peer& from = peer(hello.rank);
      from.inbound = connection;
      if (!from.connection) from.connection = std::move(connection);
      if (rank_ == 0) entry(hello.rank) = {hello.listener, 0, hello.hostIdentity};
    }
    joined_.notify_all();
  }

  // The last connection with `from` has ended.
  void lose(int from, std::string const& reason) {
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

  // A notice of `from`.
  void hear(int from, std::vector<std::byte> const& payload) {
    auto const news = newsOf(payload, ranks_);
    if (!news || news->rank == rank_) return;
    if (news->rank == from && news->kind == RankNews::Kind::left) {
      // Holds when its connections have ended: until then there may be messages in them.
      std::lock_guard const lock(mutex_);
      farewells_.emplace(from, *news);
      return;
    }
    spread(*news);
    // Where there is a connection, its own end tells, after the last message.
    if (news->kind != RankNews::Kind::failed && !server_->connectedTo(news->rank)) mailbox_.lose(*news);
  }

  // Whoever hears something new tells it to all that it is connected to: rank 0 to everybody, and the others to enough
  // that it gets around without rank 0.
  void spread(RankNews const& news) {
    if (mailbox_.tell(news) && server_) server_->tell(frameOf(news));
  }

  // Throws with the reason why `to` does not answer, as soon as it is known here.
  void explain(MessageAddress const& to, MessageWait const& wait, std::string const& what) {
    for (Deadline const deadline(explanationTime); !deadline.expired();) {
      mailbox_.requirePresent(to, wait, what);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::vector<int> missing() {
    std::vector<int> result;
    for (int other = 1; other < ranks_; ++other) {
      if (!peer(other).connection) result.push_back(other);
    }
    return result;
  }

  // Rank 0: waits for all others and tells each where the others are.
  void gather(FileHandle listener, Key128 const& secret, Deadline const& deadline) {
    table_.assign(static_cast<std::size_t>(ranks_), TableEntry{});
    entry(0) = {toWire(localAddress(listener.get())), 0, hostIdentity()};
    if (ranks_ == 1) return;
    std::string const where = localAddress(listener.get()).toString();
    log(LogLevel::info, "rank 0: listening on {} for {} ranks", where, ranks_ - 1);
    startServer(std::move(listener), secret);
    TableHeader header{wireMagic, 1, 0, randomKey()};
    std::string text;
    {
      std::unique_lock lock(mutex_);
      while (!missing().empty() && !deadline.expired()) {
        joined_.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::hours(1)));
      }
      complete_ = missing().empty();
      if (!complete_) {
        text = fmt::format("after {} these of the {} ranks had not joined rank 0 at {}: {}", describe(deadline.limit()),
                           ranks_, where, fmt::join(missing(), ", "));
        header.complete = 0;
        header.textBytes = static_cast<std::uint32_t>(text.size());
      }
    }
    std::vector<std::byte> message(sizeof header);
    std::memcpy(message.data(), &header, sizeof header);
    auto const body = header.complete != 0 ? std::as_bytes(std::span(table_)) : std::as_bytes(std::span(text));
    message.insert(message.end(), body.begin(), body.end());
    // Past the limit the explanation still gets a moment: it is short.
    Deadline const sending(std::max<std::chrono::nanoseconds>(deadline.left(), std::chrono::milliseconds(200)));
    for (int other = 1; other < ranks_; ++other) {
      std::shared_ptr<PeerSocket> connection;
      {
        std::lock_guard const lock(mutex_);
        connection = peer(other).connection;
      }
      // One that has gone already is noticed, and told to the others, by the server's thread.
      if (connection) [[maybe_unused]]
        int const error = connection->sendFirst(message, sending);
    }
    if (header.complete == 0) {
      server_.reset();
      fail(ErrorCode::timeout, "rank 0: {}; do they run, with the same unique id or address, and can they reach it?",
           text);
    }
  }

  void join(std::vector<SocketAddress> const& addresses, std::string const& interfaceName, Key128 const& secret,
            Deadline const& deadline) {
    Joined joined = joinRankZero(rank_, ranks_, addresses, interfaceName, secret, deadline);
    table_ = std::move(joined.table);
    session_ = combine(secret, joined.session);
    auto connection = std::make_shared<PeerSocket>(std::move(joined.socket), 0, true);
    peer(0).connection = connection;
    startServer(std::move(joined.listener), session_);
    server_->add(std::move(connection));
    // With the ranks that collectives send to anyway: so news gets around when rank 0 is gone.
    for (int distance = 1; distance < ranks_; distance *= 2) {
      int const to = (rank_ + distance) % ranks_;
      try {
        connectionTo({0, to, 0}, {}, Deadline(std::min(meshTime, timeout_)));
      } catch (Error const& error) {
        log(LogLevel::info, "{}", error.what());
      }
    }
  }

  std::shared_ptr<PeerSocket> connectionTo(MessageAddress const& address, MessageWait const& wait,
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

  OwnProcess const process_;
  int const rank_;
  int const ranks_;
  std::vector<int> everyone_;
  bool begun_ = false;
  bool initialized_ = false;
  std::chrono::nanoseconds timeout_{};
  Key128 session_{};
  std::vector<TableEntry> table_;
  Mailbox mailbox_;
  std::mutex mutex_;
  std::condition_variable joined_;
  bool complete_ = false;
  std::map<int, RankNews> farewells_;
  std::vector<Peer> peers_;
  std::unique_ptr<TcpServer> server_;  // last: its thread uses the members above
};

TcpBootstrap::TcpBootstrap(int rank, int nRanks) : impl_(std::make_unique<Impl>(rank, nRanks)) {}
TcpBootstrap::~TcpBootstrap() {
  // In a child of fork() its thread is not there, and its locks may be held for ever; the sockets are closed already.
  if (!impl_->process()) [[maybe_unused]]
    auto* const left = impl_.release();
}

UniqueId TcpBootstrap::createUniqueId() {
  FileHandle listener = listenOn("createUniqueId", interfaceAddress(environment().socketInterface));
  SocketAddress const address = localAddress(listener.get());
  UniqueId id = UniqueId::create(address.host(), address.port());
  keepListener(id.secret(), std::move(listener));
  return id;
}

UniqueId TcpBootstrap::createUniqueId(std::string const& address) {
  Endpoint const endpoint = parseEndpoint(address);
  if (!endpoint.interfaceName.empty()) interfaceAddress(endpoint.interfaceName);
  SocketAddress const wanted = resolve(endpoint.host, endpoint.port).front();
  if (wanted.host() == "0.0.0.0" || wanted.host() == "::") {
    fail(ErrorCode::invalidUsage,
         "createUniqueId(\"{}\"): other ranks cannot connect to \"any address\"; name one, or use createUniqueId()",
         address);
  }
  FileHandle listener = listenOn(fmt::format("createUniqueId(\"{}\")", address), wanted);
  SocketAddress const local = localAddress(listener.get());
  UniqueId id = UniqueId::create(local.host(), local.port());
  keepListener(id.secret(), std::move(listener));
  return id;
}

void TcpBootstrap::initialize(UniqueId const& id, std::optional<std::chrono::nanoseconds> timeout) {
  impl_->initialize(id, timeout);
}

void TcpBootstrap::initialize(std::string const& address, std::optional<std::chrono::nanoseconds> timeout) {
  impl_->initialize(address, timeout);
}

int TcpBootstrap::getRank() const { return impl_->rank(); }
int TcpBootstrap::getNranks() const { return impl_->ranks(); }
int TcpBootstrap::getNranksPerNode() const { return impl_->ranksPerNode(); }
std::chrono::nanoseconds TcpBootstrap::timeout() const { return impl_->timeout(); }

void TcpBootstrap::sendMessage(void const* data, std::size_t bytes, int peer, int tag) {
  impl_->send(peer, tag, data, bytes);
}

std::vector<std::byte> TcpBootstrap::recvMessage(int peer, int tag) { return impl_->recv(peer, tag); }

void TcpBootstrap::sendTo(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes) {
  impl_->send(to, wait, data, bytes);
}

std::vector<std::byte> TcpBootstrap::recvFrom(MessageAddress const& from, MessageWait const& wait) {
  return impl_->recv(from, wait);
}

}  // namespace mscclpp
