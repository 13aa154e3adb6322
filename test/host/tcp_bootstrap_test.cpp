// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>

#include "host/bootstrap/tcp_server.hpp"
#include "host/bootstrap_checks.hpp"
#include "host/net/handshake.hpp"
#include "host/ranks.hpp"
#include "support/quiet_log.hpp"
#include "support/stranger.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

// Refusals are expected here; their lines would only hide others.
UniqueId localId() { return TcpBootstrap::createUniqueId("127.0.0.1:0"); }

// True where the other end has closed: nothing but an end of file, or a reset, is left after at most `limit`.
bool closedWithin(int socket, std::chrono::milliseconds limit) {
  ::fcntl(socket, F_SETFL, 0);  // recv() waits
  timeval const time{limit.count() / 1000, (limit.count() % 1000) * 1000};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  char byte;
  for (;;) {
    auto const got = ::recv(socket, &byte, 1, 0);
    if (got == 0) return true;
    if (got < 0) return errno == ECONNRESET;
  }
}

// A port that nobody listens on, now.
std::uint16_t freePort() {
  FileHandle const listener = listenOn("test", resolve("127.0.0.1", 0).front());
  return localAddress(listener.get()).port();
}

std::string here(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

}  // namespace

// First, while this process has no threads.
TEST_CASE("ranks as processes") {
  UniqueId const id = localId();
  auto const texts = runProcesses(4, [&](int rank) {
    TcpBootstrap bootstrap(rank, 4);
    bootstrap.initialize(id, 20s);
    if (bootstrap.getNranksPerNode() != 4) return std::string("getNranksPerNode is wrong");
    return exerciseBootstrap(bootstrap);
  });
  for (auto const& text : texts) CHECK(text == "");
}

TEST_CASE("a process that is killed ends the waits for it at once") {
  UniqueId const id = localId();
  auto const texts = runProcesses(3, [&](int rank) -> std::string {
    auto const start = Clock::now();
    TcpBootstrap bootstrap(rank, 3);
    bootstrap.initialize(id, 20s);
    bootstrap.barrier();
    if (rank == 2) {
      ::raise(SIGKILL);
    }
    int value = 0;
    auto const error = errorOf([&] { bootstrap.recv(&value, sizeof value, 2, 0); });
    if (!error || error->code() != ErrorCode::remoteError) return "no remoteError: " + textOf(error);
    if (!mentions(error, "rank 2 is gone")) return error->what();
    if (Clock::now() - start > 10s) return "took as long as the limit";
    return "";
  });
  CHECK(texts[0] == "");
  CHECK(texts[1] == "");
  CHECK(texts[2] == "killed by signal 9");
}

TEST_CASE("ranks as threads, by unique id") {
  for (int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    UniqueId const id = localId();
    auto const errors = runThreads(ranks, [&](int rank) {
      TcpBootstrap bootstrap(rank, ranks);
      bootstrap.initialize(id, 20s);
      std::string const wrong = exerciseBootstrap(bootstrap);
      if (!wrong.empty()) throw Error(ErrorCode::internalError, wrong);
    });
    CHECK(allErrors(errors) == "");
  }
}

TEST_CASE("every rank to every rank at once, before anybody has connected") {
  int const ranks = 24;
  UniqueId const id = localId();
  auto const errors = runThreads(ranks, [&](int rank) {
    TcpBootstrap bootstrap(rank, ranks);
    bootstrap.initialize(id, 30s);
    for (int other = 0; other < ranks; ++other) bootstrap.send(&rank, sizeof rank, other, 1);
    for (int other = 0; other < ranks; ++other) {
      int value = -1;
      bootstrap.recv(&value, sizeof value, other, 1);
      if (value != other) throw Error(ErrorCode::internalError, "wrong message");
    }
    bootstrap.barrier();
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("by address, with IPv4, a name, an interface and IPv6") {
  std::vector<std::string> forms{"127.0.0.1:", "localhost:", "lo:127.0.0.1:"};
  {
    FileHandle const probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    if (probe && ::bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      forms.push_back("[::1]:");
      forms.push_back("lo:[::1]:");
    } else {
      MESSAGE("this machine has no IPv6 loopback: the IPv6 forms are not tried");
    }
  }
  for (auto const& form : forms) {
    std::string const address = form + std::to_string(freePort());
    CAPTURE(address);
    auto const errors = runThreads(3, [&](int rank) {
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.initialize(address, 20s);
      std::string const wrong = exerciseBootstrap(bootstrap);
      if (!wrong.empty()) throw Error(ErrorCode::internalError, wrong);
    });
    CHECK(allErrors(errors) == "");
  }
}

TEST_CASE("the id may be used some time after it was made, and by rank 0 last") {
  UniqueId const id = localId();
  auto const errors = runThreads(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(300ms);
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id, 20s);
    bootstrap.barrier();
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("strangers are refused and disturb nobody") {
  UniqueId const id = localId();
  int const ranks = 3;
  std::vector<FileHandle> strangers;
  std::atomic<bool> joined{false};
  auto const errors = runThreads(ranks, [&](int rank) {
    TcpBootstrap bootstrap(rank, ranks);
    if (rank == 1) {
      // While rank 0 waits for the others: garbage, a partial hello, nothing at all, and one that leaves again.
      FileHandle const garbage = strangerTo(id.port());
      std::string const text = "GET / HTTP/1.1\r\n\r\n";
      ::send(garbage.get(), text.data(), text.size(), MSG_NOSIGNAL);
      FileHandle const partial = strangerTo(id.port());
      ::send(partial.get(), &wireMagic, sizeof wireMagic, MSG_NOSIGNAL);
      for (int i = 0; i < 50; ++i) strangers.push_back(strangerTo(id.port()));
      strangerTo(id.port());
      if (!closedWithin(garbage.get(), 5000ms)) throw Error(ErrorCode::internalError, "garbage was not refused");
    }
    auto const start = Clock::now();
    bootstrap.initialize(id, 20s);
    if (rank == 1 && Clock::now() - start > 5s) throw Error(ErrorCode::internalError, "strangers delayed the ranks");
    std::string const wrong = exerciseBootstrap(bootstrap);
    if (!wrong.empty()) throw Error(ErrorCode::internalError, wrong);
    joined = true;
  });
  CHECK(allErrors(errors) == "");
  CHECK(joined);
}

TEST_CASE("a hello without the secret, or replayed, is refused") {
  UniqueId const id = localId();
  std::atomic<bool> tried{false};
  HandshakeResult wrongSecret;
  bool replayRefused = false;
  auto const errors = runThreads(2, [&](int rank) {
    if (rank == 1) {
      Deadline const deadline(5s);
      Hello hello{};
      hello.purpose = Purpose::join;
      hello.rank = 1;
      hello.ranks = 2;
      FileHandle const socket = strangerTo(id.port());
      wrongSecret = introduce(socket.get(), randomKey(), hello, deadline);
      // A proof made for another greeting.
      FileHandle const first = strangerTo(id.port());
      Greeting greeting{};
      recvAll(first.get(), writableBytesOf(greeting), deadline);
      hello.magic = wireMagic;
      hello.version = wireVersion;
      hello.proof = 0x1234;
      sendAll(first.get(), bytesOf(hello), deadline);
      Verdict verdict{};
      replayRefused =
          recvAll(first.get(), writableBytesOf(verdict), deadline) == 0 && verdict.admission == Admission::wrongSecret;
      tried = true;
    }
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id, 20s);
    bootstrap.barrier();
  });
  CHECK(allErrors(errors) == "");
  CHECK(tried);
  CHECK(wrongSecret.kind == HandshakeResult::Kind::refused);
  CHECK(wrongSecret.verdict.admission == Admission::wrongSecret);
  CHECK(replayRefused);
}

TEST_CASE("a rank of another job, of another size, or a second one of a rank is told so; the job goes on") {
  UniqueId const id = localId();
  std::string const address = here(id.port());
  std::optional<Error> foreign, size, second;
  auto const errors = runThreads(2, [&](int rank) {
    if (rank == 1) {
      foreign = errorOf([&] { TcpBootstrap(1, 2).initialize(address, 5s); });
      size = errorOf([&] { TcpBootstrap(1, 5).initialize(id, 5s); });
    }
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id, 20s);
    bootstrap.barrier();
    if (rank == 1) second = errorOf([&] { TcpBootstrap(1, 2).initialize(id, 5s); });
    std::string const wrong = exerciseBootstrap(bootstrap);
    if (!wrong.empty()) throw Error(ErrorCode::internalError, wrong);
  });
  CHECK(allErrors(errors) == "");
  REQUIRE(foreign.has_value());
  CHECK_MESSAGE(mentions(foreign, "rank 0 of another job"), foreign->what());
  REQUIRE(size.has_value());
  CHECK_MESSAGE(mentions(size, "has 2 ranks, but this rank was told 5"), size->what());
  CHECK(size->code() == ErrorCode::invalidUsage);
  REQUIRE(second.has_value());
  CHECK_MESSAGE(mentions(second, "has a rank 1 already"), second->what());
}

TEST_CASE("missing ranks are named, to rank 0 and to those that came, within the limit") {
  UniqueId const id = localId();
  auto const start = Clock::now();
  auto const errors = runThreads(2, [&](int rank) { TcpBootstrap(rank, 4).initialize(id, 400ms); });
  auto const passed = Clock::now() - start;
  CHECK(passed < 5s);
  REQUIRE(errors[0].has_value());
  CHECK(errors[0]->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(errors[0], "2, 3"), errors[0]->what());
  REQUIRE(errors[1].has_value());
  CHECK(errors[1]->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(errors[1], "2, 3"), errors[1]->what());
}

TEST_CASE("a stale id, where nobody listens, ends within the limit and says what to check") {
  UniqueId const id = UniqueId::create("127.0.0.1", freePort());
  auto const start = Clock::now();
  auto const error = errorOf([&] { TcpBootstrap(1, 2).initialize(id, 300ms); });
  CHECK(Clock::now() - start < 3s);
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(error, "rank 1: could not join rank 0 at " + here(id.port())), error->what());
  CHECK_MESSAGE(mentions(error, "Connection refused"), error->what());
}

TEST_CASE("what listens but is no bootstrap: silent until the limit, or told at once") {
  FileHandle const listener = listenOn("test", resolve("127.0.0.1", 0).front());
  std::uint16_t const port = localAddress(listener.get()).port();
  auto error = errorOf([&] { TcpBootstrap(1, 2).initialize(here(port), 300ms); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(error, "sent no greeting"), error->what());
  std::atomic<bool> stop{false};
  std::thread server([&] {
    std::string const banner = "220 mail.example.org ESMTP, glad to meet you";
    while (!stop) {
      FileHandle const client(::accept4(listener.get(), nullptr, nullptr, 0));
      if (client) ::send(client.get(), banner.data(), banner.size(), MSG_NOSIGNAL);
      std::this_thread::sleep_for(5ms);
    }
  });
  error = errorOf([&] { TcpBootstrap(1, 2).initialize(here(port), 10s); });
  stop = true;
  server.join();
  REQUIRE(error.has_value());
  CHECK_MESSAGE(mentions(error, "another program"), error->what());
}

TEST_CASE("an unusable address or port is named with what to do") {
  FileHandle const taken = listenOn("test", resolve("127.0.0.1", 0).front());
  std::uint16_t const port = localAddress(taken.get()).port();
  auto error = errorOf([&] { TcpBootstrap(0, 2).initialize(here(port), 5s); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::systemError);
  CHECK_MESSAGE(mentions(error, here(port)), error->what());
  CHECK_MESSAGE(mentions(error, "EADDRINUSE"), error->what());
  CHECK(mentions(errorOf([&] { TcpBootstrap::createUniqueId(here(port)); }), "EADDRINUSE"));
  // A documentation address: no host has it.
  CHECK(mentions(errorOf([&] { TcpBootstrap(0, 2).initialize("192.0.2.1:5000", 5s); }), "not one of this host's"));
  CHECK(mentions(errorOf([&] { TcpBootstrap(0, 2).initialize("127.0.0.1", 5s); }), "it has no port"));
  CHECK(mentions(errorOf([&] { TcpBootstrap(0, 2).initialize("127.0.0.1:99999", 5s); }), "99999"));
  CHECK(mentions(errorOf([&] { TcpBootstrap(1, 2).initialize("127.0.0.1:0", 5s); }), "port 0"));
  CHECK(mentions(errorOf([&] { TcpBootstrap(1, 2).initialize("::1:5000", 5s); }), "brackets"));
  CHECK(mentions(errorOf([&] { TcpBootstrap(1, 2).initialize("nosuchif0:127.0.0.1:5000", 5s); }), "nosuchif0"));
  CHECK(mentions(errorOf([&] { TcpBootstrap::createUniqueId("0.0.0.0:0"); }), "any address"));
  CHECK(mentions(errorOf([&] { TcpBootstrap(0, 2).initialize(UniqueId(), 5s); }), "empty unique id"));
}

TEST_CASE("wrong ranks, calls before initialize, second initialize, used id") {
  CHECK(mentions(errorOf([] { TcpBootstrap(2, 2); }), "rank 2 given, but with 2 ranks they are 0 to 1"));
  CHECK(mentions(errorOf([] { TcpBootstrap(-1, 2); }), "rank -1"));
  CHECK(mentions(errorOf([] { TcpBootstrap(0, 0); }), "0 ranks"));
  TcpBootstrap bootstrap(0, 1);
  int value = 0;
  CHECK(mentions(errorOf([&] { bootstrap.send(&value, 4, 0, 0); }), "before initialize"));
  UniqueId const id = localId();
  bootstrap.initialize(id, 5s);
  CHECK(mentions(errorOf([&] { bootstrap.initialize(id, 5s); }), "second initialize"));
  CHECK(mentions(errorOf([&] { TcpBootstrap(0, 1).initialize(localId(), -1s); }), "time limit"));
  // Its listener still serves the first job of two ranks.
  UniqueId const used = localId();
  auto const errors = runThreads(2, [&](int rank) {
    TcpBootstrap first(rank, 2);
    first.initialize(used, 10s);
    if (rank == 0) {
      auto const again = errorOf([&] { TcpBootstrap(0, 2).initialize(used, 5s); });
      if (!mentions(again, "used before")) throw Error(ErrorCode::internalError, textOf(again));
    }
    first.barrier();
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("time limits of messages") {
  UniqueId const id = localId();
  auto const errors = runThreads(2, [&](int rank) {
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id, 1s);
    if (rank == 0) {
      int value = 0;
      auto const start = Clock::now();
      auto const error = errorOf([&] { bootstrap.recv(&value, sizeof value, 1, 4); });
      if (!error || error->code() != ErrorCode::timeout || !mentions(error, "tag 4 of rank 1")) {
        throw Error(ErrorCode::internalError, textOf(error));
      }
      auto const passed = Clock::now() - start;
      if (passed < 900ms || passed > 5s) throw Error(ErrorCode::internalError, "not at its limit");
      bootstrap.send(&value, sizeof value, 1, 0);
    } else {
      int value = 0;
      // Longer than one limit: two waits of it.
      if (auto const first = errorOf([&] { bootstrap.recv(&value, sizeof value, 0, 0); })) {
        if (first->code() != ErrorCode::timeout) throw *first;
        bootstrap.recv(&value, sizeof value, 0, 0);
      }
    }
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("a message sent just before leaving arrives") {
  for (int round = 0; round < 20; ++round) {
    UniqueId const id = localId();
    auto const errors = runThreads(2, [&](int rank) {
      TcpBootstrap bootstrap(rank, 2);
      bootstrap.initialize(id, 10s);
      std::vector<char> message(1 << 20, 'x');
      if (rank == 0) {
        bootstrap.send(message, 1, 0);
      } else {
        bootstrap.recv(message, 0, 0);
        auto const error = errorOf([&] { bootstrap.recv(message, 0, 0); });
        if (!error || error->code() != ErrorCode::remoteError) throw Error(ErrorCode::internalError, textOf(error));
      }
    });
    CHECK(allErrors(errors) == "");
  }
}

TEST_CASE("several bootstraps in one process, one after another and at once") {
  auto const errors = runThreads(2, [&](int rank) {
    static UniqueId ids[3] = {localId(), localId(), localId()};
    std::vector<std::unique_ptr<TcpBootstrap>> bootstraps;
    for (auto const& id : ids) {
      bootstraps.push_back(std::make_unique<TcpBootstrap>(rank, 2));
      bootstraps.back()->initialize(id, 10s);
    }
    for (auto const& bootstrap : bootstraps) {
      std::string const wrong = exerciseBootstrap(*bootstrap);
      if (!wrong.empty()) throw Error(ErrorCode::internalError, wrong);
    }
  });
  CHECK(allErrors(errors) == "");
}
