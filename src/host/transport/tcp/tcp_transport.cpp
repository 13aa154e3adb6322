// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/tcp/tcp_transport.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "host/transport/tcp/tcp_frame.hpp"
#include "host/transport/tcp/tcp_outbound.hpp"
#include "host/transport/tcp/tcp_service.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

class TcpRegistration final : public Registration {
 public:
  TcpRegistration(std::shared_ptr<TcpService> service, OpenMemory const& memory)
      : service_(std::move(service)), key_{.memory = service_->addMemory(memory), .bytes = memory.bytes} {}
  ~TcpRegistration() override { service_->removeMemory(key_.memory); }
  TcpRegistration(TcpRegistration const&) = delete;
  TcpRegistration& operator=(TcpRegistration const&) = delete;

  std::vector<std::byte> key() const override {
    auto const bytes = bytesOf(key_);
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::shared_ptr<TcpService> service_;
  TcpKey key_;
};

// An endpoint in the service; ends with the last of endpoint and connection.
struct TcpPlace {
  TcpPlace(std::shared_ptr<TcpService> in, int rank)
      : service(std::move(in)), link(std::make_shared<TcpLink>()), address(service->addEndpoint(rank, link)) {}
  ~TcpPlace() { service->removeEndpoint(address.endpoint); }
  TcpPlace(TcpPlace const&) = delete;
  TcpPlace& operator=(TcpPlace const&) = delete;

  std::shared_ptr<TcpService> service;
  std::shared_ptr<TcpLink> link;
  TcpAddress address;
};

class TcpConnection final : public Connection {
 public:
  TcpConnection(int rank, int peer, std::string where, std::shared_ptr<TcpPlace> place, std::vector<FileHandle> lanes,
                TcpOptions const& options)
      : rank_(rank),
        peer_(peer),
        where_(std::move(where)),
        place_(std::move(place)),
        options_(options),
        out_(std::move(lanes), options.zeroCopy, options.timeout) {}
  ~TcpConnection() override { out_.sayGoodbye(); }

  Transport transport() const noexcept override { return Transport::tcp; }
  int peer() const noexcept override { return peer_; }

  void write(RegisteredMemory const& dst, std::uint64_t dstOffset, RegisteredMemory const& src, std::uint64_t srcOffset,
             std::uint64_t bytes) override {
    checkWrite(*this, dst, dstOffset, src, srcOffset, bytes);
    requireUp("write");
    out_.write(keyOf(dst), dstOffset, src.data() + srcOffset, bytes, src.device(), options_.stages(src.device()));
  }

  void signal(RegisteredMemory const& dst, std::uint64_t dstOffset, std::uint64_t count) override {
    checkSignal(*this, dst, dstOffset);
    requireUp("signal");
    out_.signal(keyOf(dst), dstOffset, count);
  }

  std::uint64_t posted() const noexcept override { return out_.posted(); }

  std::uint64_t progress() override {
    requireUp("progress");
    auto const reason = out_.step();
    if (!reason.empty()) {
      place_->link->fail(out_.timedOut() ? ErrorCode::timeout : ErrorCode::remoteError, reason);
      requireUp("progress");
    }
    return out_.completed();
  }

  bool waitsFor(std::vector<pollfd>& sockets) const override { return out_.waitsFor(sockets); }

  void abandon(RegisteredMemory const& dst, std::uint64_t dstOffset) noexcept override {
    try {
      signal(dst, dstOffset, abandonedSignal);
      out_.step();
    } catch (std::exception const& error) {
      log(LogLevel::debug, "rank {}: cannot tell rank {} of the failure: {}", rank_, peer_, error.what());
    }
  }

 private:
  std::uint64_t keyOf(RegisteredMemory const& memory) const {
    auto const bytes = memory.key(Transport::tcp);
    TcpKey key{};
    if (bytes.size() != sizeof key) {
      fail(ErrorCode::remoteError, "rank {}: the TCP key of memory of rank {} has {} bytes, {} are meant", rank_, peer_,
           bytes.size(), sizeof key);
    }
    std::memcpy(&key, bytes.data(), sizeof key);
    return key.memory;
  }

  void requireUp(char const* operation) {
    if (failure_) throw *failure_;
    auto const& link = *place_->link;
    if (!link.failed()) return;
    failure_.emplace(
        link.code(),
        fmt::format("rank {}: {}: the TCP connection to rank {} ({}) has failed ({}): {}; look at what rank {} and its "
                    "host say",
                    rank_, operation, peer_, where_, out_.describeOldest(), link.reason(), peer_));
    throw *failure_;
  }

  int const rank_;
  int const peer_;
  std::string const where_;
  std::shared_ptr<TcpPlace> place_;
  TcpOptions const options_;
  TcpOutbound out_;
  std::optional<Error> failure_;
};

class TcpEndpoint final : public TransportEndpoint {
 public:
  TcpEndpoint(std::shared_ptr<TcpService> service, int rank, TcpOptions options)
      : options_(std::move(options)), place_(std::make_shared<TcpPlace>(std::move(service), rank)) {}

  std::vector<std::byte> address() const override { return serialize(place_->address); }

  std::shared_ptr<Connection> connect(int rank, int peer, std::span<std::byte const> peerAddress) override {
    auto const address = parseTcpAddress(rank, peer, peerAddress);
    auto const target = *fromWire(address.listener);
    auto const where = target.toString();
    Deadline const deadline(options_.timeout);
    std::vector<FileHandle> lanes;
    for (std::uint32_t lane = 0; lane < address.lanes; ++lane) {
      int error = 0;
      FileHandle socket = connectTo(target, deadline, error);
      if (!socket) {
        fail(error == ETIMEDOUT ? ErrorCode::timeout : ErrorCode::remoteError,
             "rank {}: connect over TCP to rank {} at {}: {} (limit {}); check that rank {} runs and that no firewall "
             "is in between, or choose the interface with MSCCLPP_SOCKET_IFNAME",
             rank, peer, where, std::strerror(error), describe(deadline.limit()), peer);
      }
      prepareTcpLane(socket.get(), options_.timeout);
      Hello hello{};
      hello.purpose = Purpose::lane;
      hello.rank = rank;
      hello.hostIdentity = address.endpoint;
      hello.ranks = static_cast<std::int32_t>(lane);
      auto const result = introduce(socket.get(), address.secret, hello, deadline);
      if (result.kind != HandshakeResult::Kind::admitted) {
        fail(ErrorCode::remoteError, "rank {}: connect over TCP to rank {} at {}: it does not take the connection: {}",
             rank, peer, where, result.reason);
      }
      lanes.push_back(std::move(socket));
    }
    return std::make_shared<TcpConnection>(rank, peer, where, place_, std::move(lanes), options_);
  }

 private:
  TcpOptions options_;
  std::shared_ptr<TcpPlace> place_;
};

class TcpTransport final : public TransportContext {
 public:
  explicit TcpTransport(TcpOptions options)
      : options_(std::move(options)),
        service_(std::make_shared<TcpService>(options_.interfaceName, options_.lanes, options_.timeout)) {}

  Transport transport() const noexcept override { return Transport::tcp; }

  std::shared_ptr<Registration> registerMemory(int, Device device, void* data, std::size_t bytes) override {
    OpenMemory const memory{static_cast<std::byte*>(data), bytes, device, options_.stages(device)};
    return std::make_shared<TcpRegistration>(service_, memory);
  }

  std::unique_ptr<TransportEndpoint> createEndpoint(int rank, Device) override {
    return std::make_unique<TcpEndpoint>(service_, rank, options_);
  }

 private:
  TcpOptions options_;
  std::shared_ptr<TcpService> service_;
};

}  // namespace

TcpOptions TcpOptions::fromEnvironment(TransportOptions const& options) {
  auto const& set = environment();
  TcpOptions result;
  result.interfaceName = set.socketInterface;
  result.lanes = set.tcpSockets;
  result.zeroCopy = set.tcpZeroCopy;
  result.timeout = options.timeout;
  return result;
}

std::shared_ptr<TransportContext> makeTcpTransport(TcpOptions const& options) {
  if (options.lanes < 1 || options.lanes > mostTcpLanes) {
    fail(ErrorCode::invalidUsage, "TCP transport with {} sockets per direction: use 1 to {}", options.lanes,
         mostTcpLanes);
  }
  return std::make_shared<TcpTransport>(options);
}

}  // namespace mscclpp
