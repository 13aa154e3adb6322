// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step of a proxy costs, counted; test/host/CMakeLists.txt has the linker lead every lock through here. And whom
// a proxy that has failed tells of it, and when; and that it sleeps while it can do nothing.
#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "host/fake_runtime.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/proxy.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

thread_local int locks = 0;  // that this thread took

}  // namespace

extern "C" {
int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  ++locks;
  return __real_pthread_mutex_lock(mutex);
}
}

namespace {

template <class Act>
int locksOf(Act&& act) {
  int const before = locks;
  act();
  return locks - before;
}

}  // namespace

TEST_CASE("An idle step of a proxy takes no lock for its channels and connections") {
  FakeRuntime::instance();
  auto const world = LocalBootstrap::create(2, std::chrono::seconds(20));
  auto const errors = runThreads(2, [&](int rank) {
    Communicator communicator(world[static_cast<std::size_t>(rank)], {DeviceKind::sim, rank});
    {
      ProxyService service(communicator);
      service.progress();
      int const empty = locksOf([&] { service.progress(); });
      for (int i = 0; i < 4; ++i) {
        auto const connection = communicator.connect(1 - rank, {.transport = Transport::tcp});
        for (int j = 0; j < 40; ++j) service.buildAndAddSemaphore(connection);
      }
      GpuBuffer<int> const buffer(communicator.device(), 1);
      auto const memory = communicator.registerMemory(buffer.data(), buffer.bytes());
      // The library's locks are seen at all.
      CHECK(locksOf([&] { service.addMemory(memory); }) >= 1);
      service.progress();
      int const full = locksOf([&] { CHECK_FALSE(service.progress()); });
      CHECK(full <= 1);
      CHECK(full == empty);
      communicator.bootstrap()->barrier();
    }
    communicator.bootstrap()->barrier();
  });
  CHECK_MESSAGE(allErrors(errors).empty(), allErrors(errors));
}

namespace {

using Clock = std::chrono::steady_clock;

// To a peer that has stopped, that answers, or to one whose failure is noticed once `broken`.
class ScriptedConnection final : public Connection {
 public:
  enum class Peer { stopped, answering, failing };

  ScriptedConnection(int peer, Peer kind) : peer_(peer), kind_(kind) {}

  Transport transport() const noexcept override { return Transport::tcp; }
  int peer() const noexcept override { return peer_; }
  void write(RegisteredMemory const&, std::uint64_t, RegisteredMemory const&, std::uint64_t, std::uint64_t) override {
    ++posted_;
  }
  void signal(RegisteredMemory const&, std::uint64_t, std::uint64_t) override { ++posted_; }
  std::uint64_t posted() const noexcept override { return posted_; }
  std::uint64_t progress() override {
    if (broken && kind_ == Peer::failing) throw Error(ErrorCode::remoteError, "its process has ended");
    if (kind_ != Peer::answering) return 0;
    if (posted_ != 0 && news == Clock::time_point()) news = Clock::now();
    return posted_;
  }
  void abandon(RegisteredMemory const&, std::uint64_t) noexcept override { ++posted_; }

  bool broken = false;
  Clock::time_point news{};  // when what was posted first reached the peer

 private:
  int const peer_;
  Peer const kind_;
  std::uint64_t posted_ = 0;
};

}  // namespace

TEST_CASE("Peers that have stopped keep the news of a failure from nobody") {
  using Peer = ScriptedConnection::Peer;
  FakeRuntime::instance();
  auto const world = LocalBootstrap::create(2, std::chrono::seconds(20));
  auto const errors = runThreads(2, [&](int rank) {
    Communicator communicator(world[static_cast<std::size_t>(rank)], {DeviceKind::sim, rank});
    auto const scripted = [&](Peer kind) { return std::make_shared<ScriptedConnection>(1 - rank, kind); };
    {
      ProxyService service(communicator);
      for (int i = 0; i < 16; ++i) service.buildAndAddSemaphore(scripted(Peer::stopped));
      auto const failing = scripted(Peer::failing);
      service.buildAndAddSemaphore(failing);
      auto const answering = scripted(Peer::answering);
      service.buildAndAddSemaphore(answering);
      service.progress();
      failing->broken = true;
      auto const begin = Clock::now();
      service.progress();
      CHECK(Clock::now() - begin < std::chrono::seconds(2));  // where each is waited for, it takes 8
      CHECK(answering->news - begin < std::chrono::milliseconds(250));
      CHECK(answering->news > begin);
      auto const told = errorOf([&] { communicator.checkReports(); });
      CHECK_MESSAGE(mentions(told, "transfers to rank " + std::to_string(1 - rank)), textOf(told));
    }
    communicator.bootstrap()->barrier();
  });
  CHECK_MESSAGE(allErrors(errors).empty(), allErrors(errors));
}

namespace {

// Takes nothing before a byte comes out of its pipe.
class FullConnection final : public Connection {
 public:
  explicit FullConnection(int peer) : peer_(peer) { REQUIRE(::pipe(pipe_.data()) == 0); }
  ~FullConnection() override {
    for (int const end : pipe_) ::close(end);
  }
  Transport transport() const noexcept override { return Transport::tcp; }
  int peer() const noexcept override { return peer_; }
  void write(RegisteredMemory const&, std::uint64_t, RegisteredMemory const&, std::uint64_t, std::uint64_t) override {}
  void signal(RegisteredMemory const&, std::uint64_t, std::uint64_t) override { posted_ = 1; }
  std::uint64_t posted() const noexcept override { return posted_; }
  std::uint64_t progress() override {
    ++steps;
    return open ? posted_ : 0;
  }
  bool waitsFor(std::vector<pollfd>& sockets) const override {
    if (!open) sockets.push_back({pipe_[0], POLLIN, 0});
    return true;
  }
  void letThrough() {
    open = true;
    REQUIRE(::write(pipe_[1], "", 1) == 1);
  }

  std::atomic<int> steps{0};
  std::atomic<bool> open{false};

 private:
  int const peer_;
  std::array<int, 2> pipe_{};
  std::uint64_t posted_ = 0;
};

}  // namespace

TEST_CASE("A proxy sleeps while its connections are full, unless one of them may go on") {
  FakeRuntime::instance();
  auto const world = LocalBootstrap::create(2, std::chrono::seconds(20));
  auto const errors = runThreads(2, [&](int rank) {
    Communicator communicator(world[static_cast<std::size_t>(rank)], {DeviceKind::sim, rank});
    for (bool const another : {false, true}) {
      ProxyService service(communicator);
      auto const full = std::make_shared<FullConnection>(1 - rank);
      service.buildAndAddSemaphore(full);
      if (another) {
        service.buildAndAddSemaphore(
            std::make_shared<ScriptedConnection>(1 - rank, ScriptedConnection::Peer::answering));
      }
      full->signal({}, 0, 1);
      service.startProxy();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      int const steps = full->steps;
      // At 100 microseconds each; a proxy that asks without rest comes to some hundred thousand.
      CHECK_MESSAGE((steps > 2100) == another, steps);
      full->letThrough();
      service.stopProxy();
      CHECK_FALSE(errorOf([&] { communicator.checkReports(); }));
    }
    communicator.bootstrap()->barrier();
  });
  CHECK_MESSAGE(allErrors(errors).empty(), allErrors(errors));
}

TEST_CASE("Proxies that wait for peers which have stopped end together, within one limit") {
  using Peer = ScriptedConnection::Peer;
  FakeRuntime::instance();
  auto const world = LocalBootstrap::create(2, std::chrono::seconds(1));
  auto const errors = runThreads(2, [&](int rank) {
    Communicator communicator(world[static_cast<std::size_t>(rank)], {DeviceKind::sim, rank});
    {
      ProxyService service(communicator, {.proxies = 6});
      for (int i = 0; i < 6; ++i) {
        auto const connection = std::make_shared<ScriptedConnection>(1 - rank, Peer::stopped);
        service.buildAndAddSemaphore(connection);
        connection->signal({}, 0, 1);
      }
      service.startProxy();
      auto const begin = Clock::now();
      service.stopProxy();
      CHECK(Clock::now() - begin < std::chrono::seconds(4));  // one after the other they take 6 at least
      auto const told = errorOf([&] { communicator.checkReports(); });
      CHECK_MESSAGE(mentions(told, "what it had begun has not ended within 1.0 s"), textOf(told));
    }
    communicator.bootstrap()->barrier();
  });
  CHECK_MESSAGE(allErrors(errors).empty(), allErrors(errors));
}

TEST_CASE("Whatever a handler throws ends the proxy with an error of the communicator") {
  FakeRuntime::instance();
  auto const world = LocalBootstrap::create(1, std::chrono::seconds(20));
  for (bool const thread : {false, true}) {
    Communicator communicator(world[0], {DeviceKind::sim, 0});
    std::atomic<int> ended{0};
    Proxy proxy(communicator, [](layout::Trigger const&, std::uint64_t) { return ProxyAction::goOn; }, {},
                {.step = []() -> bool { throw 7; }, .failed = [&] { ++ended; }});
    if (thread) {
      proxy.start();
      proxy.stop();
    } else {
      proxy.progress();
    }
    CHECK(ended == 1);
    auto const error = errorOf([&] { communicator.checkReports(); });
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::internalError);
    CHECK_MESSAGE(mentions(error, "its handler threw: something that is no std::exception"), textOf(error));
  }
  // Nor does what is thrown when it is told of the failure leave its thread.
  Communicator communicator(world[0], {DeviceKind::sim, 0});
  Proxy proxy(communicator, [](layout::Trigger const&, std::uint64_t) { return ProxyAction::goOn; }, {},
              {.step = []() -> bool { throw 7; }, .failed = [] { throw 8; }});
  proxy.start();
  proxy.stop();
  CHECK(errorOf([&] { communicator.checkReports(); }));
}
