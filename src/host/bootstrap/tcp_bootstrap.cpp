// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "base/format.hpp"
#include "host/bootstrap/mailbox.hpp"
#include "host/bootstrap/tcp_server.hpp"
#include "host/net/host_identity.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

// Listeners of unique ids that were made here and not yet used, so that nobody can take the port in between.
class ListenerRegistry {
 public:
  static ListenerRegistry& instance() {
    static ListenerRegistry registry;
    return registry;
  }
  void put(UniqueId::Secret const& secret, FileHandle listener) {
    std::lock_guard const lock(mutex_);
    listeners_[secret] = std::move(listener);
  }
  FileHandle take(UniqueId::Secret const& secret) {
    std::lock_guard const lock(mutex_);
    auto const found = listeners_.find(secret);
    if (found == listeners_.end()) return {};
    FileHandle listener = std::move(found->second);
    listeners_.erase(found);
    return listener;
  }

 private:
  std::mutex mutex_;
  std::map<UniqueId::Secret, FileHandle> listeners_;
};

// What rank 0 sends to each rank that joined, followed by one TableEntry per rank, or by `textBytes` of explanation.
struct TableHeader {
  std::uint64_t magic;
  std::uint32_t complete;
  std::uint32_t textBytes;
  Key128 session;
};
struct TableEntry {
  WireAddress listener;
  std::uint32_t reserved;
  std::uint64_t hostIdentity;
};

Key128 combine(Key128 a, Key128 const& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint8_t>(a[i] ^ b[i]);
  return a;
}

constexpr std::chrono::nanoseconds shortestRetry = std::chrono::milliseconds(5);
constexpr std::chrono::nanoseconds longestRetry = std::chrono::milliseconds(250);
constexpr std::chrono::nanoseconds longestAttempt = std::chrono::seconds(3);

}  // namespace

class TcpBootstrap::Impl {
 public:
  Impl(int rank, int ranks) : rank_(rank), ranks_(ranks), peers_(static_cast<std::size_t>(ranks)) {
    if (ranks < 1) fail(ErrorCode::invalidUsage, "TcpBootstrap: {} ranks given, at least 1 is needed", ranks);
    if (rank < 0 || rank >= ranks) {
      fail(ErrorCode::invalidUsage, "TcpBootstrap: rank {} given, but with {} ranks they are 0 to {}", rank, ranks,
           ranks - 1);
    }
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
      FileHandle listener = ListenerRegistry::instance().take(id.secret());
      if (!listener) {
        listener = listenOn(fmt::format("rank 0: initialize with a unique id that was not made in this process, or was "
                                        "used before (each id serves one initialize)"),
                            addresses.front());
      }
      gather(std::move(listener), id.secret(), deadline);
    } else {
      join(addresses, {}, id.secret(), deadline);
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
    if (rank_ == 0) {
      // A name may stand for another address here than elsewhere (127.0.1.1), so it does not say where to listen.
      SocketAddress where = isNumericAddress(endpoint.host) ? addresses.front() : anyAddress(endpoint.port);
      gather(listenOn(fmt::format("rank 0: initialize(\"{}\")", text), where), {}, deadline);
    } else {
      join(addresses, endpoint.interfaceName, {}, deadline);
    }
    initialized_ = true;
  }

  void requireInitialized(std::string_view operation) const {
    if (!initialized_) {
      fail(ErrorCode::invalidUsage, "rank {}: {} before initialize; call initialize on every rank first", rank_,
           operation);
    }
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::chrono::nanoseconds timeout() const { return timeout_; }

  int ranksPerNode() const {
    requireInitialized("getNranksPerNode");
    auto const own = hostIdentity();
    return static_cast<int>(std::count_if(table_.begin(), table_.end(),
                                          [own](TableEntry const& entry) { return entry.hostIdentity == own; }));
  }

  void send(void const* data, std::size_t bytes, int peer, int tag) {
    requireInitialized("send");
    if (bytes > longestMessage) {
      fail(ErrorCode::invalidUsage, "rank {}: send of {} bytes to rank {} (tag {}); the bootstrap carries at most {}",
           rank_, bytes, peer, tag, longestMessage);
    }
    auto const* first = static_cast<std::byte const*>(data);
    if (peer == rank_) return mailbox_.push(rank_, tag, std::vector<std::byte>(first, first + bytes));
    Deadline const deadline(timeout_);
    auto const connection = connectionTo(peer, deadline);
    FrameHeader const header{frameMagic, tag, bytes};
    std::lock_guard const lock(connection->sending);
    int error = sendAll(connection->socket.get(), bytesOf(header), deadline);
    if (error == 0) error = sendAll(connection->socket.get(), {first, bytes}, deadline);
    if (error == 0) return;
    // Part of a message may be on its way: nothing sensible can follow it.
    ::shutdown(connection->socket.get(), SHUT_RDWR);
    if (error == ETIMEDOUT) {
      fail(ErrorCode::timeout,
           "rank {}: sending {} bytes to rank {} (tag {}) was not done after {}; does rank {} run, and the network "
           "between? MSCCLPP_TIMEOUT sets the limit",
           rank_, bytes, peer, tag, describe(timeout_), peer);
    }
    fail(ErrorCode::remoteError, "rank {}: cannot send {} bytes to rank {} (tag {}): {}; see that rank's output", rank_,
         bytes, peer, tag, mailbox_.lost(peer).value_or(std::strerror(error)));
  }

  std::vector<std::byte> recv(int peer, int tag) {
    requireInitialized("recv");
    return mailbox_.take(rank_, peer, tag, timeout_);
  }

 private:
  struct Peer {
    std::mutex connecting;
    std::shared_ptr<PeerSocket> connection;  // that this rank sends on; set once; guarded by mutex_
    std::shared_ptr<PeerSocket> inbound;     // that the peer opened; guarded by mutex_
  };
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
    events.message = [this](int from, int tag, std::vector<std::byte> message) {
      mailbox_.push(from, tag, std::move(message));
    };
    events.lost = [this](int from, std::string const& reason) { lose(from, reason); };
    server_ = std::make_unique<TcpServer>(rank_, ranks_, std::move(listener), key, std::move(events));
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

  void lose(int from, std::string const& reason) {
    std::lock_guard const lock(mutex_);
    if (rank_ == 0 && !complete_) {
      // It may come again, for instance after a connection that broke.
      log(LogLevel::warn, "rank 0: rank {} left while the ranks were joining: {}", from, reason);
      peer(from).inbound.reset();
      peer(from).connection.reset();
      return;
    }
    mailbox_.markLost(from, reason);
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
      if (!connection) continue;
      int const error = sendAll(connection->socket.get(), message, sending);
      if (error != 0 && header.complete != 0) {
        server_.reset();
        fail(ErrorCode::remoteError, "rank 0: rank {} left while the ranks were joining: {}; see that rank's output",
             other, std::strerror(error));
      }
    }
    if (header.complete == 0) {
      server_.reset();
      fail(ErrorCode::timeout, "rank 0: {}; do they run, with the same unique id or address, and can they reach it?",
           text);
    }
  }

  // Other ranks: finds rank 0, says where this rank listens, and receives the table.
  void join(std::vector<SocketAddress> const& addresses, std::string interfaceName, Key128 const& secret,
            Deadline const& deadline) {
    if (interfaceName.empty()) interfaceName = environment().socketInterface;
    std::string const target = addresses.front().toString();
    std::string last = "no attempt was made";
    auto pause = shortestRetry;
    // Rank 0 tells who is missing when its own limit passes, which began about when this one did.
    Deadline const tableDeadline(
        deadline.left() + std::min<std::chrono::nanoseconds>(std::chrono::milliseconds(500), deadline.limit() / 4));
    for (std::size_t attempt = 0; !deadline.expired(); ++attempt) {
      int error = 0;
      // Where a name has several addresses, one that swallows packets must not use up the time of the others.
      auto const share = addresses.size() == 1 ? deadline.left() : std::min(deadline.left(), longestAttempt);
      FileHandle socket = connectTo(addresses[attempt % addresses.size()], Deadline(share), error);
      if (socket) {
        SocketAddress own = interfaceName.empty() ? localAddress(socket.get()) : interfaceAddress(interfaceName);
        own.setPort(0);
        FileHandle listener = listenOn(fmt::format("rank {}: initialize", rank_), own);
        Hello hello{};
        hello.purpose = Purpose::join;
        hello.rank = rank_;
        hello.ranks = ranks_;
        hello.hostIdentity = hostIdentity();
        hello.listener = toWire(localAddress(listener.get()));
        HandshakeResult const result = introduce(socket.get(), secret, hello, deadline);
        if (result.kind == HandshakeResult::Kind::admitted) {
          receiveTable(std::move(socket), std::move(listener), secret, target, tableDeadline);
          return;
        }
        if (result.kind != HandshakeResult::Kind::broken) explainRefusal(result, target);
        last = result.reason;
      } else {
        last = std::strerror(error);
      }
      std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(deadline.left(), {}, pause));
      pause = std::min(pause * 2, longestRetry);
    }
    fail(ErrorCode::timeout,
         "rank {}: could not join rank 0 at {} within {} (last attempt: {}); does rank 0 run, is this its present "
         "unique "
         "id or address (an id serves one initialize), and can this host reach that port?",
         rank_, target, describe(deadline.limit()), last);
  }

  [[noreturn]] void explainRefusal(HandshakeResult const& result, std::string const& target) const {
    if (result.kind == HandshakeResult::Kind::stranger) {
      fail(ErrorCode::remoteError,
           "rank {}: {} is not rank 0 of this job: {}; choose another port or make a new unique id", rank_, target,
           result.reason);
    }
    switch (result.verdict.admission) {
      case Admission::wrongRanks:
        fail(ErrorCode::invalidUsage,
             "rank {}: rank 0 at {} has {} ranks, but this rank was told {}; give all the same", rank_, target,
             result.verdict.ranks, ranks_);
      case Admission::rankTaken:
        fail(ErrorCode::invalidUsage,
             "rank {}: rank 0 at {} has a rank {} already; each process needs a rank of its own", rank_, target, rank_);
      case Admission::wrongSecret:
        fail(ErrorCode::invalidUsage,
             "rank {}: {} is rank 0 of another job (the secret differs); the unique id or address is stale or mixed up",
             rank_, target);
      default:
        fail(ErrorCode::remoteError, "rank {}: rank 0 at {} refused this rank: {}", rank_, target, result.reason);
    }
  }

  void receiveTable(FileHandle socket, FileHandle listener, Key128 const& secret, std::string const& target,
                    Deadline const& deadline) {
    TableHeader header{};
    std::string text;
    int error = recvAll(socket.get(), writableBytesOf(header), deadline);
    if (error == 0 && header.complete == 0) {
      text.resize(std::min<std::size_t>(header.textBytes, 65536));
      error = recvAll(socket.get(), std::as_writable_bytes(std::span(text)), deadline);
    } else if (error == 0) {
      table_.resize(static_cast<std::size_t>(ranks_));
      error = recvAll(socket.get(), std::as_writable_bytes(std::span(table_)), deadline);
    }
    if (error == ETIMEDOUT) {
      fail(ErrorCode::timeout, "rank {}: joined rank 0 at {}, but the other ranks did not within {}", rank_, target,
           describe(deadline.limit()));
    }
    if (error != 0) {
      fail(ErrorCode::remoteError, "rank {}: rank 0 at {} went away while the ranks were joining: {}; see its output",
           rank_, target, std::strerror(error));
    }
    if (header.complete == 0) fail(ErrorCode::timeout, "rank {}: rank 0 gave up: {}", rank_, text);
    auto connection = std::make_shared<PeerSocket>(std::move(socket), 0);
    peer(0).connection = connection;
    session_ = combine(secret, header.session);
    startServer(std::move(listener), session_);
    server_->add(std::move(connection));
  }

  std::shared_ptr<PeerSocket> connectionTo(int to, Deadline const& deadline) {
    // One connection attempt per peer at a time; other peers are not held up.
    std::lock_guard const connecting(peer(to).connecting);
    {
      std::lock_guard const lock(mutex_);
      if (peer(to).connection) return peer(to).connection;
    }
    if (auto const gone = mailbox_.lost(to)) {
      fail(ErrorCode::remoteError, "rank {}: cannot send to rank {}: {}; see that rank's output", rank_, to, *gone);
    }
    auto const address = fromWire(entry(to).listener);
    if (!address) fail(ErrorCode::remoteError, "rank {}: rank {} told no usable address", rank_, to);
    int error = 0;
    FileHandle socket = connectTo(*address, deadline, error);
    if (!socket) {
      fail(error == ETIMEDOUT ? ErrorCode::timeout : ErrorCode::remoteError,
           "rank {}: cannot connect to rank {} at {}: {}; does rank {} still run, and do the hosts reach each other on "
           "this network (MSCCLPP_SOCKET_IFNAME chooses another)?",
           rank_, to, address->toString(), std::strerror(error), to);
    }
    Hello hello{};
    hello.purpose = Purpose::peer;
    hello.rank = rank_;
    hello.ranks = ranks_;
    hello.hostIdentity = hostIdentity();
    HandshakeResult const result = introduce(socket.get(), session_, hello, deadline);
    if (result.kind != HandshakeResult::Kind::admitted) {
      fail(deadline.expired() ? ErrorCode::timeout : ErrorCode::remoteError,
           "rank {}: rank {} at {} did not take this rank's connection within {}: {}", rank_, to, address->toString(),
           describe(deadline.limit()), result.reason);
    }
    auto connection = std::make_shared<PeerSocket>(std::move(socket), to);
    server_->add(connection);
    std::lock_guard const lock(mutex_);
    if (!peer(to).connection) peer(to).connection = std::move(connection);
    return peer(to).connection;
  }

  int const rank_;
  int const ranks_;
  bool begun_ = false;
  bool initialized_ = false;
  std::chrono::nanoseconds timeout_{};
  Key128 session_{};
  std::vector<TableEntry> table_;
  Mailbox mailbox_;
  std::mutex mutex_;
  std::condition_variable joined_;
  bool complete_ = false;
  std::vector<Peer> peers_;
  std::unique_ptr<TcpServer> server_;  // last: its thread uses the members above
};

TcpBootstrap::TcpBootstrap(int rank, int nRanks) : impl_(std::make_unique<Impl>(rank, nRanks)) {}
TcpBootstrap::~TcpBootstrap() = default;

UniqueId TcpBootstrap::createUniqueId() {
  FileHandle listener = listenOn("createUniqueId", interfaceAddress(environment().socketInterface));
  SocketAddress const address = localAddress(listener.get());
  UniqueId id = UniqueId::create(address.host(), address.port());
  ListenerRegistry::instance().put(id.secret(), std::move(listener));
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
  ListenerRegistry::instance().put(id.secret(), std::move(listener));
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
  impl_->send(data, bytes, peer, tag);
}

std::vector<std::byte> TcpBootstrap::recvMessage(int peer, int tag) { return impl_->recv(peer, tag); }

}  // namespace mscclpp
