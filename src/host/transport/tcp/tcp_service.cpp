// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/tcp/tcp_service.hpp"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "base/own_thread.hpp"

namespace mscclpp {
namespace {

// What one lane may receive before the others get their turn.
constexpr std::size_t turnBytes = std::size_t{8} << 20;
// In the midst of a large write, fewer bytes do not wake the thread: it would take them as they trickle in, and the
// sender's processor time for it.
constexpr int manyBytes = 256 << 10;
constexpr std::uint64_t wakeSource = 0;
constexpr std::uint64_t listenerSource = 1;
constexpr std::uint64_t firstSource = 2;

std::uint64_t randomId() {
  std::uint64_t id = 0;
  Key128 const key = randomKey();
  std::memcpy(&id, key.data(), sizeof id);
  return id;
}

}  // namespace

void TcpLink::fail(ErrorCode code, std::string reason) {
  std::lock_guard const lock(mutex_);
  if (failed_) return;
  code_ = code;
  reason_ = std::move(reason);
  failed_.store(true, std::memory_order_release);
}

ErrorCode TcpLink::code() const {
  std::lock_guard const lock(mutex_);
  return code_;
}

std::string TcpLink::reason() const {
  std::lock_guard const lock(mutex_);
  return reason_;
}

void prepareTcpLane(int socket, std::chrono::nanoseconds limit) {
  auto const milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  auto const set = [&](int level, int name, long long value) {
    int const number = static_cast<int>(std::clamp<long long>(value, 1, 1'000'000'000));
    ::setsockopt(socket, level, name, &number, sizeof number);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds);
  // Where nothing is sent, the kernel asks now and then whether the peer is there.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, milliseconds / 3000);
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::min<long long>(milliseconds / 6000, 10));
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

struct TcpService::Candidate {
  Candidate(FileHandle handle, std::string address)
      : socket(std::move(handle)), from(std::move(address)), greeting(makeGreeting()), deadline(examinationLimit) {}

  FileHandle socket;
  std::string from;
  Greeting greeting;
  Hello hello{};
  std::size_t filled = 0;
  Deadline deadline;
};

struct TcpService::Lane {
  Lane(FileHandle handle, std::uint64_t of, std::shared_ptr<TcpLink> its, std::shared_ptr<TcpInbound> inbound,
       int number)
      : socket(std::move(handle)), endpoint(of), link(std::move(its)), receiver(std::move(inbound), number) {}

  FileHandle socket;
  std::uint64_t const endpoint;
  std::shared_ptr<TcpLink> const link;
  TcpReceiver receiver;
  std::uint64_t answered = 0;  // frames the peer was told of
  bool refused = false;        // the peer was told so
  TcpAnswer answer{};
  std::size_t unsent = 0;  // bytes of it
  bool over = false;       // nothing more is read
  int wakesAt = 1;         // bytes that have come
};

// Lets others in before the service's thread takes its next step.
class TcpService::Turn {
 public:
  explicit Turn(TcpService& service) : service_(service) {
    ++service_.waiting_;
    service_.mutex_.lock();
    --service_.waiting_;
  }
  ~Turn() { service_.mutex_.unlock(); }
  Turn(Turn const&) = delete;
  Turn& operator=(Turn const&) = delete;

 private:
  TcpService& service_;
};

TcpService::TcpService(std::string const& interfaceName, int lanes, std::chrono::nanoseconds limit)
    : lanesPerPeer_(lanes),
      limit_(limit),
      secret_(randomKey()),
      listener_(listenOn("TCP transport", interfaceAddress(interfaceName))),
      wake_(FileHandle::own([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })),
      epoll_(FileHandle::own([] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      nextSource_(firstSource) {
  if (!wake_ || !epoll_) throwSystemError("TCP transport: make an event queue", errno);
  watch(wake_.get(), wakeSource);
  watch(listener_.get(), listenerSource);
  thread_ = startOwnThread([this] { run(); });
}

TcpService::~TcpService() {
  if (!process_) {
    thread_.detach();  // after fork() it is not here
    return;
  }
  stop_ = true;
  std::uint64_t const one = 1;
  [[maybe_unused]] auto const written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

std::uint64_t TcpService::addMemory(OpenMemory const& memory) {
  Turn const turn(*this);
  for (;;) {
    auto const id = randomId();
    if (memories_.emplace(id, memory).second) return id;
  }
}

void TcpService::removeMemory(std::uint64_t id) noexcept {
  if (!process_) return;
  Turn const turn(*this);
  memories_.erase(id);
  Deadline const deadline(StagingSlots::copyLimit);
  for (auto const& [source, lane] : lanes_) lane->receiver.withdraw(id, deadline);
}

TcpAddress TcpService::addEndpoint(int rank, std::shared_ptr<TcpLink> link) {
  TcpAddress address{};
  address.lanes = static_cast<std::uint32_t>(lanesPerPeer_);
  address.listener = toWire(localAddress(listener_.get()));
  address.secret = secret_;
  Turn const turn(*this);
  do {
    address.endpoint = randomId();
  } while (endpoints_.contains(address.endpoint));
  endpoints_[address.endpoint] = {rank, std::move(link), std::make_shared<TcpInbound>(memories_, lanesPerPeer_),
                                  std::vector<bool>(static_cast<std::size_t>(lanesPerPeer_))};
  return address;
}

void TcpService::removeEndpoint(std::uint64_t id) noexcept {
  if (!process_) return;
  Turn const turn(*this);
  endpoints_.erase(id);
  std::erase_if(lanes_, [&](auto const& entry) { return entry.second->endpoint == id; });
}

void TcpService::watch(int descriptor, std::uint64_t source) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = source;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    throwSystemError("TCP transport: watch a socket", errno);
  }
}

void TcpService::accept() {
  for (int count = 0; count < 64; ++count) {
    FileHandle socket = acceptFrom(listener_.get());
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        crowded_ = true;
        refusals_.log(LogLevel::warn,
                      "TCP transport: no room for a new connection: {}; raise the open file limit (ulimit -n)",
                      std::strerror(errno));
        if (!candidates_.empty()) candidates_.erase(candidates_.begin());
      }
      return;
    }
    std::string from = "?";
    try {
      from = remoteAddress(socket.get()).toString();
    } catch (Error const&) {
      continue;  // it is gone already
    }
    prepareTcpLane(socket.get(), limit_);
    if (candidates_.size() >= mostCandidates) {
      refusals_.log(LogLevel::warn, "TCP transport: refused {}: too many connections that do not introduce themselves",
                    candidates_.begin()->second->from);
      candidates_.erase(candidates_.begin());
    }
    auto candidate = std::make_unique<Candidate>(std::move(socket), std::move(from));
    // A fresh socket has room for 32 bytes; one that has not is no use.
    auto const sent = ::send(candidate->socket.get(), &candidate->greeting, sizeof(Greeting), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(sizeof(Greeting))) continue;
    watch(candidate->socket.get(), nextSource_);
    candidates_.emplace(nextSource_++, std::move(candidate));
  }
}

Admission TcpService::decide(Hello const& hello) const {
  auto const found = endpoints_.find(hello.endpoint());
  if (hello.purpose != Purpose::lane || found == endpoints_.end()) return Admission::wrongPurpose;
  if (hello.lane() < 0 || hello.lane() >= lanesPerPeer_) return Admission::rankOutOfRange;
  return found->second.taken[static_cast<std::size_t>(hello.lane())] ? Admission::rankTaken : Admission::admitted;
}

void TcpService::examine(std::uint64_t source, Candidate& candidate) {
  auto const room = writableBytesOf(candidate.hello).subspan(candidate.filled);
  auto const got = ::recv(candidate.socket.get(), room.data(), room.size(), 0);
  if (got < 0 && wouldBlock(errno)) return;
  if (got <= 0) {
    refusals_.log(LogLevel::warn, "TCP transport: {} connected and left without introducing itself", candidate.from);
    candidates_.erase(source);
    return;
  }
  candidate.filled += static_cast<std::size_t>(got);
  Hello const& hello = candidate.hello;
  if (std::memcmp(&hello.magic, &wireMagic, std::min(candidate.filled, sizeof hello.magic)) != 0) {
    refusals_.log(LogLevel::warn, "TCP transport: refused {}: it does not speak this library's language",
                  candidate.from);
    candidates_.erase(source);
    return;
  }
  if (candidate.filled < sizeof hello) return;
  Admission admission = Admission::wrongSecret;
  if (hello.version == wireVersion && proves(secret_, candidate.greeting, hello)) admission = decide(hello);
  Verdict const verdict = makeVerdict(secret_, hello, admission, lanesPerPeer_);
  auto const sent = ::send(candidate.socket.get(), &verdict, sizeof verdict, MSG_NOSIGNAL);
  if (admission != Admission::admitted) {
    refusals_.log(LogLevel::warn, "TCP transport: refused {}, which says it is rank {}: {}", candidate.from, hello.rank,
                  nameOf(admission));
  } else if (sent == static_cast<ssize_t>(sizeof verdict)) {
    auto& endpoint = endpoints_.at(hello.endpoint());
    endpoint.taken[static_cast<std::size_t>(hello.lane())] = true;
    lanes_.emplace(source, std::make_unique<Lane>(std::move(candidate.socket), hello.endpoint(), endpoint.link,
                                                  endpoint.inbound, hello.lane()));
  }
  candidates_.erase(source);
}

void TcpService::read(Lane& lane) {
  std::string reason;
  ErrorCode code = ErrorCode::remoteError;
  for (std::size_t received = 0; received < turnBytes && reason.empty();) {
    auto const rooms = lane.receiver.rooms();
    if (rooms.empty()) break;
    auto const got = ::readv(lane.socket.get(), rooms.data(), static_cast<int>(rooms.size()));
    if (got > 0) {
      auto const bytes = static_cast<std::size_t>(got);
      auto const asked = rooms[0].iov_len + (rooms.size() == 2 ? rooms[1].iov_len : 0);
      lane.receiver.advance(bytes);
      received += bytes;
      if (bytes < asked) break;  // there was no more
    } else if (got == 0) {
      reason = lane.receiver.atBoundary() ? "it closed the connection without a goodbye: its process has ended"
                                          : "it closed the connection within a message: its process has ended";
    } else if (wouldBlock(errno)) {
      break;
    } else {
      if (errno == ETIMEDOUT) code = ErrorCode::timeout;
      reason = std::strerror(errno);
    }
  }
  if (lane.receiver.refusal() != TcpRefusal::none) {
    reason = fmt::format("what it sent cannot be done here: {}", lane.receiver.describeRefusal());
  }
  if (!reason.empty()) lane.link->fail(code, reason);
  answer(lane);
  if (int const wakesAt = lane.receiver.expected() >= manyBytes ? manyBytes : 1; wakesAt != lane.wakesAt) {
    ::setsockopt(lane.socket.get(), SOL_SOCKET, SO_RCVLOWAT, &wakesAt, sizeof wakesAt);
    lane.wakesAt = wakesAt;
  }
  if (!reason.empty() || lane.receiver.saidGoodbye()) {
    // The socket stays open, so that the peer can read the last answer.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane.socket.get(), nullptr);
    lane.over = true;
  }
}

void TcpService::answer(Lane& lane) {
  for (;;) {
    if (lane.unsent > 0) {
      auto const rest = bytesOf(lane.answer).last(lane.unsent);
      auto const sent = ::send(lane.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return;  // later; a broken socket shows in read()
      lane.unsent -= static_cast<std::size_t>(sent);
      continue;
    }
    auto const refusal = lane.receiver.refusal();
    bool const refuse = refusal != TcpRefusal::none && !lane.refused;
    if (lane.receiver.frames() == lane.answered && !refuse) return;
    lane.answered = lane.receiver.frames();
    lane.refused = refuse;
    lane.answer = {tcpFrameMagic, refusal, lane.answered};
    lane.unsent = sizeof lane.answer;
  }
}

void TcpService::expireCandidates() {
  std::erase_if(candidates_, [&](auto const& entry) {
    if (!entry.second->deadline.expired()) return false;
    refusals_.log(LogLevel::warn, "TCP transport: refused {}: it did not introduce itself within {}",
                  entry.second->from, describe(examinationLimit));
    return true;
  });
}

int TcpService::waitMilliseconds() const {
  int limit = candidates_.empty() ? -1 : candidates_.begin()->second->deadline.pollMilliseconds();
  for (auto const& [source, lane] : lanes_) {
    if (lane->receiver.copying()) return 0;
    if (lane->unsent > 0) limit = 1;
  }
  return limit;
}

void TcpService::serve(std::uint64_t source) {
  if (source == wakeSource) return;
  if (source == listenerSource) return accept();
  if (auto const candidate = candidates_.find(source); candidate != candidates_.end()) {
    examine(source, *candidate->second);
  } else if (auto const lane = lanes_.find(source); lane != lanes_.end() && !lane->second->over) {
    read(*lane->second);
  }
}

void TcpService::run() {
  std::array<epoll_event, 64> events;
  int wait = -1;
  while (!stop_) {
    int const count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait);
    if (count < 0 && errno != EINTR) {
      log(LogLevel::error, "TCP transport: waiting for sockets failed: {}", std::strerror(errno));
      return;
    }
    while (waiting_ > 0) std::this_thread::yield();
    std::unique_lock lock(mutex_);
    bool crowded = false;
    try {
      crowded_ = false;
      for (int i = 0; i < count; ++i) serve(events[static_cast<std::size_t>(i)].data.u64);
      for (auto const& [source, lane] : lanes_) {
        if (lane->over) continue;
        if (lane->receiver.copying()) read(*lane);
        if (lane->unsent > 0) answer(*lane);
      }
      expireCandidates();
      wait = waitMilliseconds();
      crowded = crowded_;
    } catch (std::exception const& error) {
      // What a copy of staged memory throws ends the connection it belongs to, all of them where that is not known.
      log(LogLevel::error, "TCP transport: {}", error.what());
      for (auto const& [source, lane] : lanes_) {
        lane->link->fail(ErrorCode::internalError, fmt::format("the receiving thread failed: {}", error.what()));
      }
      wait = 50;
    }
    lock.unlock();
    // While descriptors are short, the listener would only wake this thread for nothing.
    if (crowded) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace mscclpp
