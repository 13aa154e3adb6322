// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/memory/descriptor_server.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "host/net/host_identity.hpp"
#include "host/net/unix_socket.hpp"
#include "host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

FileHandle memoryHolding(std::string const& text) {
  FileHandle file(::memfd_create("mscclpp_test", MFD_CLOEXEC));
  REQUIRE(file);
  REQUIRE(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  return file;
}

std::string contentOf(FileHandle const& file) {
  char text[64] = {};
  auto const got = ::pread(file.get(), text, sizeof text, 0);
  return std::string(text, got > 0 ? static_cast<std::size_t>(got) : 0);
}

// Two processes: the first publishes and waits, the second gets its identity and key through a pipe.
struct Channel {
  int ends[2] = {-1, -1};
  Channel() { REQUIRE(::pipe(ends) == 0); }
  ~Channel() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  template <class T>
  void put(T const& value) {
    if (::write(ends[1], &value, sizeof value) != sizeof value) throw Error(ErrorCode::internalError, "pipe");
  }
  template <class T>
  T get() {
    T value{};
    if (::read(ends[0], &value, sizeof value) != sizeof value) throw Error(ErrorCode::internalError, "pipe");
    return value;
  }
};

struct Ticket {
  Key128 process;
  Key128 key;
};

}  // namespace

TEST_CASE("another process gets the same memory, by its key only, until it is withdrawn") {
  Channel toReader;
  Channel toOwner;
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    if (rank == 0) {
      auto const key = DescriptorServer::instance().publish(memoryHolding("shared words"));
      toReader.put(Ticket{processIdentity(), key});
      toOwner.get<char>();
      DescriptorServer::instance().withdraw(key);
      toReader.put('w');
      toOwner.get<char>();
      return "";
    }
    auto const ticket = toReader.get<Ticket>();
    FileHandle const file = fetchDescriptor(ticket.process, ticket.key, "memory of rank 0", 5s);
    if (contentOf(file) != "shared words") return "other content: " + contentOf(file);
    if ((::fcntl(file.get(), F_GETFD) & FD_CLOEXEC) == 0) return "the descriptor would leak into started programs";
    auto error = errorOf([&] { fetchDescriptor(ticket.process, randomKey(), "memory of rank 0", 5s); });
    if (!error || error->code() != ErrorCode::remoteError) return "a guessed key: " + textOf(error);
    // One that connects and says nothing holds nobody up.
    int ignored = 0;
    std::string name = "mscclpp-fd-";
    for (auto byte : ticket.process) {
      char part[3];
      std::snprintf(part, sizeof part, "%02x", byte);
      name += part;
    }
    FileHandle const silent = connectUnix(name, ignored);
    if (!silent) return "no connection";
    FileHandle const again = fetchDescriptor(ticket.process, ticket.key, "memory of rank 0", 5s);
    if (contentOf(again) != "shared words") return "other content the second time";
    toOwner.put('a');
    toReader.get<char>();
    error = errorOf([&] { fetchDescriptor(ticket.process, ticket.key, "memory of rank 0", 5s); });
    toOwner.put('b');
    if (!mentions(error, "no longer shares it")) return "after withdrawal: " + textOf(error);
    return "";
  });
  CHECK(texts[0] == "");
  CHECK(texts[1] == "");
}

TEST_CASE("a process that has ended is named") {
  auto const error = errorOf([] { fetchDescriptor(randomKey(), randomKey(), "memory of rank 7 (64 bytes)", 2s); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::remoteError);
  CHECK_MESSAGE(mentions(error, "memory of rank 7 (64 bytes): its process does not answer"), error->what());
}

// ThreadSanitizer cannot follow a fork of a process that has threads.
#if !defined(__SANITIZE_THREAD__)
TEST_CASE("after fork the child has a server and an identity of its own") {
  auto const key = DescriptorServer::instance().publish(memoryHolding("parent"));
  Key128 const parent = processIdentity();
  auto const texts = runProcesses(1, [&](int) -> std::string {
    if (processIdentity() == parent) return "same identity";
    auto const mine = DescriptorServer::instance().publish(memoryHolding("child"));
    if (contentOf(fetchDescriptor(processIdentity(), mine, "child", 5s)) != "child") return "own server does not serve";
    if (contentOf(fetchDescriptor(parent, key, "parent", 5s)) != "parent") return "parent does not serve";
    return errorOf([&] { fetchDescriptor(processIdentity(), key, "child", 5s); }) ? "" : "inherited keys are served";
  });
  CHECK(texts[0] == "");
  DescriptorServer::instance().withdraw(key);
}
#endif
