// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/format.hpp"
#include "host/bootstrap/listeners.hpp"
#include "host/bootstrap/tcp_impl.hpp"
#include "host/net/host_identity.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

// Rank 0 has a socket for each; a machine's ports and descriptors end far before this.
constexpr int mostRanks = 1 << 16;
// A first connection is made for the sake of news alone: others may be without it.
constexpr std::chrono::nanoseconds meshTime = std::chrono::seconds(3);

UniqueId uniqueIdAt(FileHandle socket) {
  SocketAddress const address = localAddress(socket.get());
  UniqueId id = UniqueId::create(address.host(), address.port());
  keepPort(id.secret(), std::move(socket));
  return id;
}

Key128 combine(Key128 a, Key128 const& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint8_t>(a[i] ^ b[i]);
  return a;
}

}  // namespace

TcpBootstrap::Impl::Impl(int rank, int ranks)
    : rank_(rank),
      ranks_(checked(rank, ranks)),
      mailbox_(rank, [this](RankNews const& news) { spread(news); }),
      peers_(static_cast<std::size_t>(ranks)) {
  everyone_.resize(static_cast<std::size_t>(ranks));
  std::iota(everyone_.begin(), everyone_.end(), 0);
}

void TcpBootstrap::Impl::initialize(UniqueId const& id, std::optional<std::chrono::nanoseconds> timeout) {
  begin(timeout);
  if (id.port() == 0) {
    fail(ErrorCode::invalidUsage, "rank {}: initialize with an empty unique id; take rank 0's createUniqueId()", rank_);
  }
  Deadline const deadline(timeout_);
  auto const addresses = resolve(id.host(), id.port());
  if (rank_ == 0) {
    FileHandle listener = takePort(id.secret());
    if (!listener) {
      listener = listenOnReserved(
          "rank 0: initialize with a unique id that was made elsewhere, or was used before (each id serves one "
          "initialize)",
          addresses.front());
    }
    gather(std::move(listener), id.secret(), deadline);
  } else {
    join(addresses, environment().socketInterface, id.secret(), deadline);
  }
  complete();
}

void TcpBootstrap::Impl::initialize(std::string const& text, std::optional<std::chrono::nanoseconds> timeout) {
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
    if (auto const at = localAddress(listener.get()); environment().secret.empty() && !at.isLoopback() && ranks_ > 1) {
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
  complete();
}

void TcpBootstrap::Impl::complete() {
  initialized_ = true;
  if (!server_) return;
  watchNeighbours();
  atExit_ = std::make_unique<AtExit>([this] {
    if (watch_) watch_->leave();
    server_->tell(farewell());
  });
}

void TcpBootstrap::Impl::watchNeighbours() {
  std::vector<DeathWatch::Member> here;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (entry(rank).hostIdentity == entry(rank_).hostIdentity) here.push_back({rank, entry(rank).listener});
  }
  if (here.size() < 2 || here.size() > DeathWatch::mostRanks) return;
  try {
    auto watch = std::make_unique<DeathWatch>(rank_, ranks_, std::move(here), session_, std::move(door_),
                                              [this](int dead, std::string const& reason) {
                                                learn({dead, RankNews::Kind::died, -1, reason});
                                              });
    std::lock_guard const lock(mutex_);
    watch_ = std::move(watch);
  } catch (std::exception const& error) {
    log(LogLevel::info, "rank {}: no early notice of deaths on this host: {}", rank_, error.what());
  }
}

void TcpBootstrap::Impl::requireInitialized(std::string_view operation) const {
  if (!initialized_) {
    fail(ErrorCode::invalidUsage, "rank {}: {} before initialize; call initialize on every rank first", rank_,
         operation);
  }
  if (!process_) {
    fail(ErrorCode::invalidUsage,
         "rank {}: {} in a child of fork(), in which the bootstrap of its parent is of no use; make one there", rank_,
         operation);
  }
}

int TcpBootstrap::Impl::ranksPerNode() const {
  requireInitialized("getNranksPerNode");
  auto const own = hostIdentity();
  return static_cast<int>(std::count_if(table_.begin(), table_.end(),
                                        [own](TableEntry const& entry) { return entry.hostIdentity == own; }));
}

int TcpBootstrap::Impl::checked(int rank, int ranks) {
  if (ranks < 1 || ranks > mostRanks) {
    fail(ErrorCode::invalidUsage, "TcpBootstrap: {} ranks given, allowed are 1 to {}", ranks, mostRanks);
  }
  if (rank < 0 || rank >= ranks) {
    fail(ErrorCode::invalidUsage, "TcpBootstrap: rank {} given, but with {} ranks they are 0 to {}", rank, ranks,
         ranks - 1);
  }
  return ranks;
}

void TcpBootstrap::Impl::begin(std::optional<std::chrono::nanoseconds> timeout) {
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

std::vector<int> TcpBootstrap::Impl::missing() {
  std::vector<int> result;
  for (int other = 1; other < ranks_; ++other) {
    if (!peer(other).connection) result.push_back(other);
  }
  return result;
}

void TcpBootstrap::Impl::gather(FileHandle listener, Key128 const& secret, Deadline const& deadline) {
  table_.assign(static_cast<std::size_t>(ranks_), TableEntry{});
  entry(0) = {toWire(localAddress(listener.get())), 0, hostIdentity()};
  if (ranks_ == 1) return;
  std::string const where = localAddress(listener.get()).toString();
  log(LogLevel::info, "rank 0: listening on {} for {} ranks", where, ranks_ - 1);
  startServer(std::move(listener), secret);
  TableHeader header{wireMagic, 1, 0, randomKey()};
  session_ = combine(secret, header.session);
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

void TcpBootstrap::Impl::join(std::vector<SocketAddress> const& addresses, std::string const& interfaceName,
                              Key128 const& secret, Deadline const& deadline) {
  Joined joined = joinRankZero(rank_, ranks_, addresses, interfaceName, secret, deadline);
  table_ = std::move(joined.table);
  session_ = combine(secret, joined.session);
  door_ = std::move(joined.door);
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

TcpBootstrap::TcpBootstrap(int rank, int nRanks) : impl_(std::make_unique<Impl>(rank, nRanks)) {}
TcpBootstrap::~TcpBootstrap() {
  // In a child of fork() its thread is not there, and its locks may be held for ever; the sockets are closed already.
  if (!impl_->process()) [[maybe_unused]]
    auto* const left = impl_.release();
}

UniqueId TcpBootstrap::createUniqueId() {
  return uniqueIdAt(reservePort("createUniqueId", interfaceAddress(environment().socketInterface)));
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
  auto const purpose = fmt::format("createUniqueId(\"{}\")", address);
  return uniqueIdAt(wanted.port() == 0 ? reservePort(purpose, wanted) : listenOn(purpose, wanted));
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

std::shared_ptr<void> TcpBootstrap::listen(Died died) { return impl_->listen(std::move(died)); }

void TcpBootstrap::declareLost(std::string const& reason) { impl_->declareLost(reason); }

}  // namespace mscclpp
