// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Port channels between processes: proxies are threads there, and memory is mapped from descriptors.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp;

namespace {

constexpr unsigned words = 64;
constexpr std::uint64_t part = words * sizeof(std::uint32_t);

struct Rounds {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* own, std::uint32_t rounds,
                                 std::uint32_t* wrong) const {
    auto const block = thisBlock();
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      own[block.rank()] = round * 1000 + block.rank();
      channel.putWithSignal(block, part, 0, part);
      channel.wait(block);
      if (own[words + block.rank()] != round * 1000 + block.rank()) {
        fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
      }
      channel.flush(block);
      channel.signal(block);
      channel.wait(block);
    }
  }
};

// A port of this host that nobody uses at the moment.
int freePort() {
  int const socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

// Two ranks as processes; whether both return true.
bool inTwoProcesses(std::function<bool(Communicator&)> const& rankMain) {
  auto const address = "127.0.0.1:" + std::to_string(freePort());
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    auto const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      bool right = false;
      try {
        auto const bootstrap = std::make_shared<TcpBootstrap>(rank, 2);
        bootstrap->initialize(address);
        Communicator communicator(bootstrap, Device{DeviceKind::sim, rank});
        right = rankMain(communicator);
      } catch (std::exception const& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      ::_exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  bool right = true;
  for (auto const child : children) {
    int status = -1;
    right &= ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return right;
}

struct Pair {
  GpuBuffer<std::uint32_t> own;
  ProxyService service;
  PortChannel channel;

  explicit Pair(Communicator const& communicator)
      : own(communicator.device(), 2 * words),
        service(communicator, {.proxies = 1, .fifoSize = 8}),
        channel(connect(communicator)) {
    service.startProxy();
  }

 private:
  PortChannel connect(Communicator const& communicator) {
    int const peer = 1 - communicator.rank();
    auto const mine = communicator.registerMemory(own.data(), own.bytes(), communicator.transports());
    auto const all = communicator.exchangeMemory(mine);
    auto const semaphore = service.buildAndAddSemaphore(communicator.connect(peer));
    auto const target = service.addMemory(all[static_cast<std::size_t>(peer)]);
    return service.portChannel(semaphore, target, service.addMemory(mine));
  }
};

}  // namespace

TEST_CASE("rounds between two processes") {
  CHECK(inTwoProcesses([](Communicator& communicator) {
    Pair const pair(communicator);
    GpuBuffer<std::uint32_t> const wrong(communicator.device(), 1);
    Stream const stream(communicator.device());
    launch(stream, {.blocks = 1, .threads = words}, Rounds{}, pair.channel.deviceHandle(), pair.own.data(), 20u,
           wrong.data());
    communicator.synchronize(stream);
    communicator.bootstrap()->barrier();
    return copyToHost(wrong)[0] == 0;
  }));
}

TEST_CASE("a peer that dies: the wait ends at once, names it and the channel, and the rest goes on alone") {
  CHECK(inTwoProcesses([](Communicator& communicator) {
    Pair const pair(communicator);
    GpuBuffer<std::uint32_t> const wrong(communicator.device(), 1);
    communicator.bootstrap()->barrier();
    if (communicator.rank() == 1) ::_exit(0);
    Stream const stream(communicator.device());
    launch(stream, {.blocks = 1, .threads = words}, Rounds{}, pair.channel.deviceHandle(), pair.own.data(), 20u,
           wrong.data());
    try {
      communicator.synchronize(stream);
      return false;
    } catch (Error const& error) {
      std::string const text = error.what();
      bool const named = text.starts_with("rank 0: rank 1 is gone");
      if (!named || text.find("a signal of rank 1's proxy on port channel 0: expected count 1, seen 0") == text.npos) {
        std::fprintf(stderr, "%s\n", error.what());
        return false;
      }
    }
    auto const left = communicator.survivors();
    return left == std::vector<int>{0} && communicator.shrink(left)->size() == 1;
  }));
}
