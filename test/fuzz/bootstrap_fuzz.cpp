// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The serving end of the bootstrap: what an unknown program sends to its port, and what an admitted rank sends.
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "fuzz.hpp"
#include "host/bootstrap/tcp_server.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

struct Server {
  std::mutex mutex;
  std::condition_variable changed;
  int lost = 0;
  SocketAddress address;
  std::unique_ptr<TcpServer> server;

  Server() {
    setLogLevel(LogLevel::off);
    auto listener = listenOn("fuzzing", interfaceAddress("lo"));
    address = localAddress(listener.get());
    TcpServer::Events events;
    events.decide = [](Hello const&) { return Admission::admitted; };
    events.admitted = [](auto, Hello const&) { complain("a stranger was admitted"); };
    events.message = [](FrameHeader const&, int, auto) {};
    events.lost = [this](int, std::string const& reason) {
      require(!reason.empty(), "a loss without a reason");
      std::lock_guard const lock(mutex);
      ++lost;
      changed.notify_all();
    };
    Key128 key{};
    key.fill(7);
    server = std::make_unique<TcpServer>(0, 2, std::move(listener), key, events);
    server->start();
  }

  // As an admitted rank; returns when the server has read all and noticed the end.
  void feed(Bytes bytes) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) return;
    FileHandle const peer(ends[1]);
    std::unique_lock lock(mutex);
    int const before = lost;
    server->add(std::make_shared<PeerSocket>(FileHandle(ends[0]), 1, true));
    lock.unlock();
    sendAll(peer.get(), bytes, Deadline(std::chrono::seconds(5)));
    ::shutdown(peer.get(), SHUT_WR);
    lock.lock();
    require(changed.wait_for(lock, std::chrono::seconds(10), [&] { return lost > before; }), "the server hangs");
  }

  void knock(Bytes bytes) {
    int error = 0;
    FileHandle const stranger = connectTo(address, Deadline(std::chrono::seconds(5)), error);
    if (!stranger) return;
    sendAll(stranger.get(), bytes, Deadline(std::chrono::seconds(5)));
    // Reset rather than waited for, or the ports run out.
    linger const now{1, 0};
    ::setsockopt(stranger.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
};

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static auto* const server = new Server;
  auto const bytes = bytesOfInput(data, size);
  if (size > 0 && data[0] % 8 == 0) {
    server->knock(bytes.subspan(1));
  } else if (size > 0) {
    server->feed(bytes.subspan(1));
  }
  return 0;
}
