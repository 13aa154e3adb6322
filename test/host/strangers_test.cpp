// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who else is on the network, and bad input: where rank 0 listens, what secret it asks for, what it logs of strangers.
#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "host/bootstrap/listeners.hpp"
#include "host/bootstrap/peer_socket.hpp"
#include "host/bootstrap/tcp_server.hpp"
#include "host/bootstrap_checks.hpp"
#include "host/net/handshake.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/log.hpp"
#include "support/stranger.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

std::uint16_t freePort() {
  FileHandle const listener = listenOn("test", resolve("127.0.0.1", 0).front());
  return localAddress(listener.get()).port();
}

std::string contentOf(std::filesystem::path const& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::size_t linesWith(std::string const& text, std::string const& part) {
  std::size_t count = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) count += line.find(part) != std::string::npos ? 1 : 0;
  return count;
}

// Connects and leaves, `count` times.
void pester(std::uint16_t port, int count) {
  for (int i = 0; i < count; ++i) {
    FileHandle const stranger = strangerTo(port);
    char const text[] = "GET / HTTP/1.1\r\n\r\n";
    if (stranger) ::send(stranger.get(), text, sizeof text, MSG_NOSIGNAL);
  }
}

}  // namespace

// First, while this process has no threads.
TEST_CASE("a pipe that nobody reads and a thousand strangers do not stop a job") {
  auto const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    if (rank == 0) {
      int ends[2];
      if (::pipe(ends) != 0) return "no pipe";
      ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
      ::dup2(ends[1], STDERR_FILENO);
      setLogLevel(LogLevel::info);
      for (int i = 0; i < 200; ++i) writeLog(LogLevel::warn, "a line that fills the pipe, since nobody reads it");
    }
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id, 20s);
    bootstrap.barrier();
    if (rank == 1) pester(id.port(), 1200);
    auto const start = Clock::now();
    bootstrap.barrier();
    auto const wrong = exerciseBootstrap(bootstrap);
    return Clock::now() - start < 15s ? wrong : "late";
  });
  for (auto const& text : texts) CHECK(text == "");
}

TEST_CASE("lines that nobody reads are counted, and the next one that has room says so") {
  auto const texts = runProcesses(1, [&](int) -> std::string {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
    ::dup2(ends[1], STDERR_FILENO);
    for (int i = 0; i < 500; ++i) writeLog(LogLevel::warn, "a line that fills the pipe, since nobody reads it");
    std::string text(1 << 16, ' ');
    text.resize(static_cast<std::size_t>(::read(ends[0], text.data(), text.size())));
    writeLog(LogLevel::warn, "after it was read");
    text.assign(1 << 16, ' ');
    text.resize(static_cast<std::size_t>(::read(ends[0], text.data(), text.size())));
    if (linesWith(text, "log lines before this one were lost") != 1) return "no word of lost lines: " + text;
    return linesWith(text, "after it was read") == 1 ? "" : "not the line: " + text;
  });
  CHECK(texts[0] == "");
}

TEST_CASE("refusals are logged at a limited rate, and those left out are counted") {
  auto const folder = std::filesystem::temp_directory_path() / ("mscclpp_strangers." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  auto const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    if (rank == 0) ::setenv("MSCCLPP_LOG_FILE", (folder / "log").c_str(), 1);
    TcpBootstrap bootstrap(rank, 2);
    bootstrap.initialize(id, 20s);
    if (rank == 1) pester(id.port(), 500);
    bootstrap.barrier();
    std::this_thread::sleep_for(1100ms);
    if (rank == 1) pester(id.port(), 1);
    std::this_thread::sleep_for(200ms);
    bootstrap.barrier();
    return "";
  });
  for (auto const& text : texts) CHECK(text == "");
  auto const log = contentOf(folder / "log");
  std::filesystem::remove_all(folder);
  CHECK(linesWith(log, "refused") >= 20);
  CHECK(linesWith(log, "refused") < 40);
  CHECK(linesWith(log, "such lines before this one were left out") >= 1);
}

TEST_CASE(
    "with MSCCLPP_SECRET only those that know it join by an address; without it rank 0 warns, but not of loopback") {
  auto const address = "127.0.0.1:" + std::to_string(freePort());
  auto texts = runProcesses(3, [&](int rank) -> std::string {
    setLogLevel(LogLevel::off);
    // The last one is a second rank 1, which knows nothing, and comes first.
    if (rank < 2) ::setenv("MSCCLPP_SECRET", "0f2c5ab1", 1);
    if (rank == 1) std::this_thread::sleep_for(700ms);
    auto const error = errorOf([&] {
      TcpBootstrap bootstrap(rank == 2 ? 1 : rank, 2);
      bootstrap.initialize(address, 20s);
      bootstrap.barrier();
    });
    if (rank == 2) return mentions(error, "MSCCLPP_SECRET") ? "" : "joined: " + textOf(error);
    return error ? error->what() : "";
  });
  for (auto const& text : texts) CHECK(text == "");

  auto const everywhere = interfaceAddress("");
  if (everywhere.isLoopback()) return;
  auto const folder = std::filesystem::temp_directory_path() / ("mscclpp_secret." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (bool const secret : {false, true}) {
    SocketAddress open = everywhere;
    open.setPort(freePort());
    auto const path = folder / ("log" + std::to_string(secret));
    texts = runProcesses(2, [&](int rank) -> std::string {
      ::setenv("MSCCLPP_LOG_FILE", path.c_str(), 1);
      if (secret) ::setenv("MSCCLPP_SECRET", "0f2c5ab1", 1);
      TcpBootstrap bootstrap(rank, 2);
      bootstrap.initialize(open.toString(), 20s);
      bootstrap.barrier();
      return "";
    });
    for (auto const& text : texts) CHECK(text == "");
    CHECK(linesWith(contentOf(path), "without a secret") == (secret ? 0 : 1));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("the secret of an Open MPI 4 job") {
  auto const read = [](std::string const& own) {
    return readEnvironment([&](std::string const& name) -> std::optional<std::string> {
             if (name == "OMPI_MCA_orte_precondition_transports") return "8b1e-77aa";
             if (name == "MSCCLPP_SECRET" && !own.empty()) return own;
             return {};
           })
        .secret;
  };
  CHECK(read("") == "8b1e-77aa");
  CHECK(read("mine") == "mine");
  CHECK(secretOf("") == Key128{});
  CHECK(secretOf("a") != secretOf("b"));
}

TEST_CASE("a name is listened at where it is this host's") {
  auto const at = [](std::string const& host, std::vector<SocketAddress> const& addresses) {
    FileHandle const listener = listenFor("test", host, addresses);
    return localAddress(listener.get());
  };
  auto const loopback = resolve("127.0.0.1", 0).front();
  auto const foreign = resolve("192.0.2.1", 0).front();  // a documentation address: no host has it
  CHECK(at("localhost", {loopback}).host() == "127.0.0.1");
  CHECK(at("localhost", {resolve("::1", 0).front(), loopback}).isLoopback());
  CHECK(at("127.0.0.1", {loopback}).host() == "127.0.0.1");
  // Elsewhere such a name may stand for another address.
  CHECK_FALSE(at("node7", {loopback}).isLoopback());
  CHECK_FALSE(at("service", {foreign}).isLoopback());
  auto const own = interfaceAddress("");
  if (!own.isLoopback()) {
    CHECK(at("node7", {loopback, own}).host() == own.host());
    CHECK(at("node7", {foreign, own}).host() == own.host());
  }
  auto const six = resolve("::1", 0).front();
  if (isOwnAddress(six)) {
    CHECK(at("localhost", {six}).host() == "::1");
    // At all addresses means those of IPv6, too, and of IPv4 beside them.
    FileHandle const listener = listenFor("test", "node7", {six});
    auto const port = localAddress(listener.get()).port();
    for (std::string const host : {"::1", "127.0.0.1"}) {
      int error = 0;
      CHECK(connectTo(resolve(host, port).front(), Deadline(5s), error));
    }
  } else {
    MESSAGE("this machine has no IPv6 loopback: names with such addresses alone are not tried");
  }
}

TEST_CASE("a rank that was stopped while it connects says who it is only if it then waits for the answer") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  FileHandle const mine = FileHandle::own([&] { return ends[0]; });
  FileHandle const theirs = FileHandle::own([&] { return ends[1]; });
  auto const greeting = makeGreeting();
  Hello hello{};
  hello.purpose = Purpose::peer;
  Key128 const key{};

  REQUIRE(sendAll(theirs.get(), bytesOf(greeting), Deadline(1s)) == 0);
  CHECK(introduce(mine.get(), key, hello, Deadline(0s)).kind == HandshakeResult::Kind::broken);
  Hello got{};
  CHECK(::recv(theirs.get(), &got, sizeof got, 0) == -1);

  REQUIRE(sendAll(theirs.get(), bytesOf(greeting), Deadline(1s)) == 0);
  std::thread answer([&] {
    REQUIRE(recvAll(theirs.get(), writableBytesOf(got), Deadline(5s)) == 0);
    std::this_thread::sleep_for(100ms);
    REQUIRE(sendAll(theirs.get(), bytesOf(makeVerdict(key, got, Admission::admitted, 2)), Deadline(1s)) == 0);
  });
  CHECK(introduce(mine.get(), key, hello, Deadline(50ms)).kind == HandshakeResult::Kind::admitted);
  answer.join();
}

TEST_CASE("a rank that has given up connecting is not taken for one that has ended") {
  setLogLevel(LogLevel::off);
  Key128 const key{};
  std::atomic<int> admitted{0}, lost{0}, unconfirmed{0};
  std::atomic<TcpServer*> running{nullptr};
  TcpServer::Events events;
  events.decide = [](Hello const&) { return Admission::admitted; };
  events.admitted = [&](std::shared_ptr<PeerSocket> const&, Hello const& hello) {
    // Its messages are on their way.
    CHECK(running.load()->connectedTo(hello.rank));
    ++admitted;
  };
  events.unconfirmed = [&](int peer) {
    CHECK(peer == 0);
    CHECK_FALSE(running.load()->connectedTo(peer));
    ++unconfirmed;
  };
  events.message = [](FrameHeader const&, int, std::vector<std::byte> const&) {};
  events.lost = [&](int, std::string const&) { ++lost; };
  FileHandle listener = listenOn("test", resolve("127.0.0.1", 0).front());
  auto const address = localAddress(listener.get());
  TcpServer server(1, 2, std::move(listener), key, std::move(events));
  running = &server;
  server.start();
  Deadline const deadline(10s);
  Hello hello{};
  hello.purpose = Purpose::peer;
  auto const connect = [&] {
    int error = 0;
    return connectTo(address, deadline, error);
  };

  // Its hello is on the way when it goes, as where the accepting rank is stopped.
  FileHandle gone = connect();
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  FileHandle const mine = FileHandle::own([&] { return ends[0]; });
  FileHandle theirs = FileHandle::own([&] { return ends[1]; });
  std::thread giver([&] { CHECK(introduce(mine.get(), key, hello, deadline).kind == HandshakeResult::Kind::broken); });
  Greeting greeting{};
  REQUIRE(recvAll(gone.get(), writableBytesOf(greeting), deadline) == 0);
  REQUIRE(sendAll(theirs.get(), bytesOf(greeting), deadline) == 0);
  Hello said{};
  REQUIRE(recvAll(theirs.get(), writableBytesOf(said), deadline) == 0);
  theirs.reset();
  giver.join();
  REQUIRE(sendAll(gone.get(), bytesOf(said), deadline) == 0);
  gone.reset();
  std::this_thread::sleep_for(100ms);
  CHECK(admitted == 0);
  CHECK(lost == 0);
  CHECK(unconfirmed == 1);

  FileHandle stays = connect();
  REQUIRE(introduce(stays.get(), key, hello, deadline).kind == HandshakeResult::Kind::admitted);
  while (admitted == 0 && !deadline.expired()) std::this_thread::sleep_for(1ms);
  CHECK(admitted == 1);
  CHECK(unconfirmed == 1);
  stays.reset();
  while (lost == 0 && !deadline.expired()) std::this_thread::sleep_for(1ms);
  CHECK(lost == 1);
}

TEST_CASE("numbers of ranks that cannot be are refused in words") {
  CHECK(mentions(errorOf([] { TcpBootstrap(0, -1); }), "-1 ranks given, allowed are 1 to 65536"));
  CHECK(mentions(errorOf([] { TcpBootstrap(0, 2'000'000'000); }), "2000000000 ranks given, allowed are 1 to 65536"));
  CHECK(mentions(errorOf([] { LocalBootstrap::create(-1); }), "-1 ranks asked for"));
  CHECK(mentions(errorOf([] { LocalBootstrap::create(2'000'000'000); }), "allowed are 1 to 65536"));
}

TEST_CASE("ids that nobody uses do not keep sockets without end; the last ones work") {
  setLogLevel(LogLevel::off);
  auto const open = [] {
    std::size_t count = 0;
    for ([[maybe_unused]] auto const& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
  };
  std::vector<UniqueId> ids;
  auto const before = open();
  for (int i = 0; i < 300; ++i) ids.push_back(TcpBootstrap::createUniqueId("127.0.0.1:0"));
  CHECK(open() <= before + 64);
  for (auto const at : {ids.size() - 1, ids.size() - 64}) {
    CAPTURE(at);
    auto const errors = runThreads(2, [&](int rank) {
      TcpBootstrap bootstrap(rank, 2);
      bootstrap.initialize(ids[at], 10s);
      bootstrap.barrier();
    });
    CHECK(allErrors(errors) == "");
  }
}

TEST_CASE("mail of a rank that left while joining is not for its successor") {
  setLogLevel(LogLevel::off);
  auto const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  std::atomic<bool> left{false};
  auto const errors = runThreads(3, [&](int rank) {
    if (rank == 1) {
      // It joins, writes too early, and leaves.
      Hello hello{};
      hello.purpose = Purpose::join;
      hello.rank = 1;
      hello.ranks = 3;
      FileHandle socket = strangerTo(id.port());
      if (introduce(socket.get(), id.secret(), hello, Deadline(5s)).kind != HandshakeResult::Kind::admitted) {
        throw Error(ErrorCode::internalError, "not admitted");
      }
      int const stale = 666;
      sendAll(socket.get(), bytesOf(FrameHeader{frameMagic, 5, 0, sizeof stale}), Deadline(5s));
      sendAll(socket.get(), bytesOf(stale), Deadline(5s));
      std::this_thread::sleep_for(100ms);
      socket.reset();
      std::this_thread::sleep_for(100ms);
      left = true;
    }
    while (rank == 2 && !left) std::this_thread::sleep_for(1ms);
    TcpBootstrap bootstrap(rank, 3);
    bootstrap.initialize(id, 10s);
    int value = 7;
    if (rank == 1) bootstrap.send(&value, sizeof value, 0, 5);
    if (rank == 0) {
      bootstrap.recv(&value, sizeof value, 1, 5);
      if (value != 7) throw Error(ErrorCode::internalError, "got what its predecessor has sent");
    }
    bootstrap.barrier();
  });
  CHECK(allErrors(errors) == "");
}
