// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Children of ranks, as data loaders are: they neither keep a dead parent's connections open nor end a living one's.
#include <doctest/doctest.h>

#include <fcntl.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "base/file_handle.hpp"
#include "host/bootstrap_checks.hpp"
#include "host/net/socket.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/log.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

// Destroyed by exit(), as what a Python module holds.
std::shared_ptr<Bootstrap> program;

pid_t forked(std::function<void()> const& body) {
  pid_t const child = ::fork();
  if (child != 0) return child;
  ::alarm(20);
  body();
  ::_exit(0);
}

std::string endOf(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

TEST_CASE("who makes an id need not be rank 0") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  // Forked before there is the id, which is a stranger's there.
  pid_t const child = forked([&] {
    std::array<std::byte, uniqueIdBytes> bytes{};
    bool const got = ::read(pipe[0], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    auto const id = UniqueId::fromBytes(bytes);
    TcpBootstrap bootstrap(0, 2);
    bootstrap.initialize(id, 10s);
    bootstrap.barrier();
    // It serves one initialize all the same.
    bool const again = mentions(errorOf([&] { TcpBootstrap(0, 2).initialize(id, 1s); }), "used before");
    bootstrap.barrier();
    ::_exit(got && again ? 0 : 1);
  });
  auto const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const bytes = id.toBytes();
  std::thread late([&] {
    std::this_thread::sleep_for(100ms);  // rank 1 is here before rank 0 listens
    (void)!::write(pipe[1], bytes.data(), bytes.size());
  });
  TcpBootstrap bootstrap(1, 2);
  bootstrap.initialize(id, 10s);
  bootstrap.barrier();
  bootstrap.barrier();
  late.join();
  CHECK(endOf(child) == "");
  for (int const end : pipe) ::close(end);
}

// While this process has no threads.
TEST_CASE("a killed parent is noticed within a second though a child of it lives") {
  for (bool const waitsAlready : {false, true}) {
    CAPTURE(waitsAlready);
    UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    auto const texts = runProcesses(3, [&](int rank) -> std::string {
      setLogLevel(LogLevel::off);
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.initialize(id, 20s);
      bootstrap.barrier();
      if (rank == 1) {
        forked([] { std::this_thread::sleep_for(3s); });
        std::this_thread::sleep_for(200ms);
        ::raise(SIGKILL);
      }
      if (!waitsAlready) std::this_thread::sleep_for(400ms);
      auto const start = Clock::now();
      auto const error = errorOf([&] { bootstrap.barrier(); });
      if (!mentions(error, "rank 1 is gone")) return textOf(error);
      return Clock::now() - start < 1s ? "" : "late";
    });
    CHECK(texts[0] == "");
    CHECK(texts[1] == "killed by signal 9");
    CHECK(texts[2] == "");
  }
}

TEST_CASE("a child that calls exit(), or drops what it got, leaves its parent's connections alone") {
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    setLogLevel(LogLevel::off);
    auto made = std::make_shared<TcpBootstrap>(rank, 2);
    made->initialize(id, 20s);
    program = std::move(made);  // the only one that holds it
    Bootstrap* const bootstrap = program.get();
    bootstrap->barrier();
    // While another thread waits, and so holds what the child must not wait for.
    std::thread waiting([&] {
      int value = 0;
      bootstrap->recv(&value, sizeof value, 1 - rank, 3);
    });
    std::this_thread::sleep_for(50ms);
    std::string wrong;
    for (int round = 0; round < 10; ++round) {
      wrong += endOf(forked([] { std::exit(0); }));
      wrong += endOf(forked([] { program.reset(); }));
      bootstrap->barrier();
    }
    bootstrap->send(&rank, sizeof rank, 1 - rank, 3);
    waiting.join();
    wrong += exerciseBootstrap(*bootstrap);
    program.reset();
    return wrong;
  });
  for (auto const& text : texts) CHECK(text == "");
}

TEST_CASE("a child can make a bootstrap of its own, also with an id of its parent") {
  UniqueId const first = TcpBootstrap::createUniqueId("127.0.0.1:0");
  UniqueId const second = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    setLogLevel(LogLevel::off);
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(first, 20s);
    auto const wrong = endOf(forked([&] {
      TcpBootstrap own(rank, 2);
      own.initialize(second, 10s);
      ::_exit(exerciseBootstrap(own).empty() ? 0 : 1);
    }));
    return wrong + exerciseBootstrap(bootstrap);
  });
  for (auto const& text : texts) CHECK(text == "");
}

TEST_CASE("the bootstrap of a parent says in a child that it is of no use there") {
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    setLogLevel(LogLevel::off);
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id, 20s);
    auto const wrong = endOf(
        forked([&] { ::_exit(mentions(errorOf([&] { bootstrap.barrier(); }), "in a child of fork()") ? 0 : 1); }));
    return wrong + exerciseBootstrap(bootstrap);
  });
  for (auto const& text : texts) CHECK(text == "");
}

TEST_CASE("a bootstrap of threads in a child") {
  auto ranks = LocalBootstrap::create(2, 10s);
  std::thread waiting([&] {
    int value = 0;
    ranks[0]->recv(&value, sizeof value, 1, 0);
  });
  std::this_thread::sleep_for(50ms);
  CHECK(endOf(forked([&] { ranks.clear(); })) == "");
  int const value = 1;
  ranks[1]->send(&value, sizeof value, 0, 0);
  waiting.join();
}

TEST_CASE("what is of a process alone is no descriptor of a connection in a child, whose number stays taken") {
  FileHandle const listener = listenOn("test", resolve("127.0.0.1", 0).front());
  int const number = listener.get();
  CHECK(endOf(forked([&] {
          sockaddr_storage address;
          socklen_t length = sizeof address;
          bool const socket = ::getsockname(number, reinterpret_cast<sockaddr*>(&address), &length) == 0;
          ::_exit(socket || ::fcntl(number, F_GETFD) != FD_CLOEXEC ? 1 : 0);
        })) == "");
  CHECK(localAddress(number).port() != 0);
}
