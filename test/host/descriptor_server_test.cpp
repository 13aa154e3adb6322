// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a process hands to others that know its key, and memory that it makes for them only then.
#include "host/memory/descriptor_server.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "host/fake_runtime.hpp"
#include "host/memory/late_memory.hpp"
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

constexpr std::size_t lateBytes = 4096;

RegisteredMemory mapped(Ticket const& ticket) {
  return LateMemory::map(ticket.process, ticket.key, fake(2), "memory of rank 0");
}

}  // namespace

// First, while this process has no threads.
TEST_CASE("late memory: another process has it made, whatever its owner does, and is told why that cannot be") {
  fake(0);
  Channel toReader;
  Channel toOwner;
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    auto& machine = FakeRuntime::instance();
    auto const before = machine.liveBlocks();
    if (rank == 0) {
      machine.wishes.largestAllocation = lateBytes - 1;
      std::optional<LateMemory> memory(std::in_place, 0, fake(1), lateBytes, false);
      if (memory->bytes() != 0 || machine.liveBlocks() != before) return "it is there before anybody needs it";
      toReader.put(Ticket{processIdentity(), memory->key()});
      toOwner.get<char>();
      if (!mentions(errorOf([&] { memory->data(); }), "has no room")) return "the owner is not refused";
      machine.wishes.largestAllocation = lateBytes;
      if (memory->bytes() != 0) return "it is there though there was no room";
      toReader.put('r');
      toOwner.get<char>();
      if (memory->bytes() != lateBytes) return "it has not been made";
      if (*reinterpret_cast<int*>(memory->data()) != 77) return "it is not what the peer has mapped";
      memory.reset();
      toReader.put('g');
      toOwner.get<char>();
      return machine.liveBlocks() == before ? "" : "memory leaked";
    }
    auto const ticket = toReader.get<Ticket>();
    auto const full = errorOf([&] { mapped(ticket); });
    toOwner.put('f');
    if (!full || full->code() != ErrorCode::remoteError ||
        !mentions(full, "memory of rank 0: its process cannot make it: fake device 1 has no room")) {
      return textOf(full);
    }
    toReader.get<char>();
    {
      auto const once = mapped(ticket), twice = mapped(ticket);
      if (once.size() != lateBytes || once.rank() != 0) return "wrong description";
      *reinterpret_cast<int*>(once.data()) = 77;
      if (*reinterpret_cast<int*>(twice.data()) != 77) return "made twice";
    }
    if (machine.liveBlocks() != before) return "a mapping leaked";
    toOwner.put('m');
    toReader.get<char>();
    auto const gone = errorOf([&] { mapped(ticket); });
    toOwner.put('e');
    return gone && gone->code() == ErrorCode::remoteError && mentions(gone, "memory of rank 0") ? "" : textOf(gone);
  });
  CHECK(texts[0] == "");
  CHECK(texts[1] == "");
}

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

TEST_CASE("late memory in one process: made once, by whichever thread comes first") {
  std::optional<LateMemory> memory(std::in_place, 0, fake(1), lateBytes, true);
  Ticket const ticket{processIdentity(), memory->key()};
  constexpr int users = 8;
  std::vector<std::byte*> found(users);
  CHECK(allErrors(runThreads(users, [&](int user) {
          found[static_cast<std::size_t>(user)] = user == 0 ? memory->data() : mapped(ticket).data();
        })) == "");
  CHECK(std::set<std::byte*>(found.begin(), found.end()).size() == 1);
  CHECK(memory->bytes() == lateBytes);
  memory.reset();
  auto const error = errorOf([&] { mapped(ticket); });
  CHECK_MESSAGE(mentions(error, "memory of rank 0: its rank has given it up"), textOf(error));
}

TEST_CASE("late memory whose owner has ended is named") {
  auto const error = errorOf([] { mapped({randomKey(), randomKey()}); });
  CHECK_MESSAGE(mentions(error, "memory of rank 0: its process does not answer"), textOf(error));
}
