// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What robust words alone tell: ranks without any connection, and ranks whose connections outlive them.
#include "host/bootstrap/death_watch.hpp"

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "host/fake_runtime.hpp"
#include "host/net/unix_socket.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "support/ending.hpp"
#include "support/quiet_log.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

Key128 const session{1, 2, 3};
std::string const ended = " (its process ended) ";
// For threads that only have to run once.
constexpr auto settling = 300ms;

// A count that all processes of a test have.
class Count {
 public:
  Count()
      : word_(static_cast<int*>(
            ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Count() { ::munmap(word_, sizeof *word_); }
  void add() const { ++std::atomic_ref(*word_); }
  void await(int value) const {
    auto const start = Clock::now();
    while (std::atomic_ref(*word_).load() < value && Clock::now() - start < 10s) std::this_thread::sleep_for(1ms);
  }
  void meet(int value) const {
    add();
    await(value);
  }

 private:
  int* word_;
};

// What names the doors of a test's ranks, which are children of one process.
WireAddress listenerOf(int rank, int parent) {
  WireAddress address{4, static_cast<std::uint16_t>(rank), {}};
  std::memcpy(address.ip.data(), &parent, sizeof parent);
  return address;
}

// A rank of several of one host, which have nothing else of each other.
class Watching {
 public:
  struct Options {
    std::function<void()> doorsOpen = [] {};
    std::function<void(int)> heard = [](int) {};
    int parent = ::getppid();
  };

  Watching(int rank, int ranks, Count const& doors) : Watching(rank, ranks, doors, Options{}) {}
  Watching(int rank, int ranks, Count const& doors, Options const& options) {
    auto door = DeathWatch::openDoor(listenerOf(rank, options.parent));
    doors.meet(ranks);
    options.doorsOpen();
    std::vector<DeathWatch::Member> members;
    for (int other = 0; other < ranks; ++other) members.push_back({other, listenerOf(other, options.parent)});
    watch_ = std::make_unique<DeathWatch>(rank, ranks, members, session, std::move(door),
                                          [this, act = options.heard](int dead, std::string const& reason) {
                                            act(dead);
                                            std::lock_guard const lock(mutex_);
                                            heard_ += std::to_string(dead) + " (" + reason + ") ";
                                          });
    std::this_thread::sleep_for(settling);
  }

  DeathWatch& operator*() const { return *watch_; }
  void drop() { watch_.reset(); }
  std::string heard() {
    std::lock_guard const lock(mutex_);
    return heard_;
  }
  // What is wrong where this is not all that is heard soon. Sanitizers keep who calls _exit() for a second.
  std::string hears(std::string const& text, Ending const* ending = nullptr) {
    auto const start = Clock::now();
    while (heard() != text) {
      if (ending == nullptr ? Clock::now() - start > 3s : ending->since(start) > noticed) return "heard: " + heard();
      std::this_thread::sleep_for(1ms);
    }
    return "";
  }

 private:
  std::mutex mutex_;
  std::string heard_;
  std::unique_ptr<DeathWatch> watch_;
};

// A process that nobody is told of, and that has what its parent has, connections included. It must not do much.
pid_t bareChild() { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)); }

// From now on futex_waitv is what an older kernel takes it for, and some containers.
bool forbidWaiting() {
  std::array<sock_filter, 4> rules{
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 449, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  sock_fprog const program{rules.size(), rules.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

pid_t forked(std::function<void()> const& body) {
  pid_t const child = ::fork();
  if (child != 0) return child;
  ::alarm(3);
  body();
  ::_exit(0);
}

bool const canWait = [] {
  ::syscall(449, nullptr, 0, 0, nullptr, 0);
  return errno == EINVAL;
}();

}  // namespace

TEST_SUITE_BEGIN("deaths" * doctest::skip(!canWait) * doctest::description("the kernel has no futex_waitv"));

// First, while this process has no threads.
TEST_CASE("all hear of each that ends without a word, and of none that has left") {
  int const ranks = 8;
  Count const doors;
  Count const sure;
  Count const first;
  Count const second;
  Ending const killed;
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    Watching self(rank, ranks, doors);
    if (rank == 1) {
      (*self).leave();
      ::raise(SIGKILL);
    }
    if (rank == 2) {
      self.drop();
      ::_exit(0);
    }
    std::this_thread::sleep_for(100ms);
    if (!self.heard().empty()) return "heard: " + self.heard();
    sure.meet(6);
    // It has made the memory.
    if (rank == 0) killed.kill();
    std::string text = "0" + ended;
    auto wrong = self.hears(text, &killed);
    first.meet(5);
    if (rank == 7) {
      std::signal(SIGABRT, SIG_DFL);
      std::abort();
    }
    wrong += self.hears(text += "7" + ended);
    second.meet(4);
    if (rank == 4) ::_exit(0);
    return wrong + self.hears(text += "4" + ended);
  });
  for (int const rank : {2, 3, 4, 5, 6}) CHECK(texts[static_cast<std::size_t>(rank)] == "");
}

TEST_CASE("ranks of one process die together, for all others") {
  Count const doors;
  auto const texts = runProcesses(3, [&](int process) -> std::string {
    std::string wrong[2];
    int const parent = ::getppid();
    auto const errors = runThreads(2, [&](int place) {
      int const rank = 2 * process + place;
      Watching self(rank, 6, doors, {.parent = parent});
      if (rank == 3) ::raise(SIGKILL);
      auto const either = self.hears("2" + ended + "3" + ended);
      wrong[place] = either.empty() ? "" : self.hears("3" + ended + "2" + ended);
    });
    return allErrors(errors) + wrong[0] + wrong[1];
  });
  CHECK(texts[0] == "");
  CHECK(texts[2] == "");
}

TEST_CASE("who dies of another's death is told after it") {
  for (int round = 0; round < 5; ++round) {
    int const ranks = 5;
    Count const doors;
    auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
      auto const die = [&](int) {
        if (rank == 0 || rank == 1) ::raise(SIGKILL);
      };
      Watching self(rank, ranks, doors, {.heard = die});
      if (rank == 3) ::raise(SIGKILL);
      std::this_thread::sleep_for(300ms);
      auto const heard = self.heard();
      bool const all = heard.size() == 3 * (1 + ended.size());
      return all && heard.starts_with("3" + ended) ? "" : "heard: " + heard;
    });
    CHECK(texts[2] == "");
    CHECK(texts[4] == "");
  }
}

TEST_CASE("what a rank has heard otherwise is told before the death that it leads to") {
  int const ranks = 3;
  Count const doors;
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    Watching self(rank, ranks, doors);
    if (rank == 1) {
      (*self).record(2);
      ::raise(SIGKILL);
    }
    if (rank == 2) std::this_thread::sleep_for(200ms);
    return rank == 2 ? "" : self.hears("2 (another rank has lost its connection with it) 1" + ended);
  });
  CHECK(texts[0] == "");
}

TEST_CASE("one that has stopped keeps no news from the others") {
  int const ranks = 4;
  Count const doors;
  Ending const ending;
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    Watching self(rank, ranks, doors);
    if (rank == 1) {
      std::this_thread::sleep_for(200ms);
      ending.kill();
    }
    if (rank == 2) {
      forked([] {
        std::this_thread::sleep_for(1s);
        ::kill(::getppid(), SIGCONT);
      });
      ::raise(SIGSTOP);
    }
    return self.hears("1" + ended, &ending);
  });
  for (int const rank : {0, 3}) CHECK(texts[static_cast<std::size_t>(rank)] == "");
}

TEST_CASE("one that cannot wait for words hears nothing, and is heard of") {
  int const ranks = 3;
  for (bool const leaves : {true, false}) {
    Count const doors;
    Count const known;
    auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
      if (rank == 2 && !forbidWaiting()) return "no seccomp";
      Watching self(rank, ranks, doors);
      if (rank == 1) ::raise(SIGKILL);
      std::string wrong;
      if (rank == 0) wrong = self.hears("1" + ended);
      known.meet(2);
      if (rank == 2) {
        std::this_thread::sleep_for(100ms);
        wrong = self.heard();
        if (leaves) self.drop();
        ::_exit(wrong.empty() ? 0 : 1);
      }
      std::this_thread::sleep_for(leaves ? 400ms : 0ms);
      return wrong + self.hears("1" + ended + (leaves ? "" : "2" + ended));
    });
    if (texts[2] == "no seccomp") return;
    CHECK(texts[0] == "");
    CHECK(texts[2] == "");
  }
}

TEST_CASE("children of a rank are no ranks: they harm nobody, and outlive nobody") {
  int const ranks = 3;
  Count const doors;
  Count const sure;
  Ending const ending;
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    Watching self(rank, ranks, doors);
    if (rank == 1) {
      for (int round = 0; round < 3; ++round) {
        forked([] { std::exit(0); });
        forked([] { ::raise(SIGKILL); });
        forked([] { std::thread([] {}).join(); });
        while (::wait(nullptr) > 0) {
        }
      }
      forked([] { std::this_thread::sleep_for(2s); });
    }
    std::this_thread::sleep_for(200ms);
    if (!self.heard().empty()) return "heard: " + self.heard();
    sure.meet(ranks);
    if (rank == 1) ending.kill();
    return self.hears("1" + ended, &ending);
  });
  CHECK(texts[0] == "");
  CHECK(texts[2] == "");
}

TEST_CASE("strangers at the door change nothing") {
  int const ranks = 3;
  Count const doors;
  Count const come;
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    std::vector<FileHandle> strangers;
    auto const annoy = [&] {
      auto const own = listenerOf(2, ::getppid());
      std::string name = "mscclpp-watch-";
      for (auto const byte : bytesOf(own)) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
        name += digits;
      }
      for (int i = 0; rank == 0 && i < 3; ++i) {
        int error = 0;
        auto stranger = connectUnix(name, error);
        if (!stranger) std::abort();
        std::vector<std::byte> const garbage(16);
        Deadline const deadline(1s);
        if (i > 0) [[maybe_unused]]
          int const sent = sendAll(stranger.get(), garbage, deadline);
        if (i > 1) [[maybe_unused]]
          int const sent = sendDescriptor(stranger.get(), 0);
        strangers.push_back(std::move(stranger));
      }
      come.meet(ranks);
    };
    Watching self(rank, ranks, doors, {.doorsOpen = annoy});
    std::this_thread::sleep_for(500ms);
    if (rank == 1) ::raise(SIGKILL);
    return self.hears("1" + ended);
  });
  CHECK(texts[0] == "");
  CHECK(texts[2] == "");
}

TEST_CASE("one to whom nobody brings the memory waits for nothing") {
  std::vector<DeathWatch::Member> const members{{0, listenerOf(0, ::getpid())}, {1, listenerOf(1, ::getpid())}};
  auto const start = Clock::now();
  for (bool const open : {true, false}) {
    DeathWatch watch(1, 2, members, session, open ? DeathWatch::openDoor(members[1].listener) : FileHandle(),
                     [](int, std::string const&) {});
    watch.record(0);
    std::this_thread::sleep_for(10ms);
  }
  // Nor one that finds no door.
  DeathWatch const first(0, 2, members, session, {}, [](int, std::string const&) {});
  CHECK(Clock::now() - start < 1s);
}

TEST_CASE("a killed rank is known while its connections are open, and what it has sent is still received") {
  fake(0);
  for (int const victim : {0, 5}) {
    int const ranks = 8;
    Count const done;
    Ending const ending;
    UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
      auto const bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
      bootstrap->initialize(id, 20s);
      Communicator const communicator(bootstrap, fake(rank));
      bootstrap->barrier();
      std::this_thread::sleep_for(settling);
      if (rank == victim) {
        for (int other = 0; other < ranks; ++other) bootstrap->send(&other, sizeof other, other, 5);
        if (bareChild() == 0) {
          done.await(ranks - 1);
          ::_exit(0);
        }
        ending.kill();
      }
      std::string wrong;
      auto const text = "rank " + std::to_string(victim) + " is gone (its process ended)";
      auto const start = Clock::now();
      while (!communicator.fault() && ending.since(start) < noticed) std::this_thread::sleep_for(1ms);
      if (!mentions(communicator.fault(), text)) wrong = "no early notice: " + textOf(communicator.fault());
      int value = -1;
      bootstrap->recv(&value, sizeof value, victim, 5);
      if (value != rank) wrong += "another message";
      auto const gone = "rank " + std::to_string(victim) + " is gone";
      if (auto const error = errorOf([&] { bootstrap->barrier(); }); !mentions(error, gone)) wrong += textOf(error);
      done.meet(ranks - 1);
      return wrong;
    });
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(rank);
      CHECK(texts[static_cast<std::size_t>(rank)] == (rank == victim ? "killed by signal 9" : ""));
    }
  }
}

TEST_SUITE_END();
