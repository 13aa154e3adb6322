// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A communicator knows that one of its ranks has died, without a call; and of no rank that has left.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host/bootstrap/bootstrap_access.hpp"
#include "host/fake_runtime.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/wait.hpp"
#include "support/ending.hpp"
#include "support/quiet_log.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

std::shared_ptr<TcpBootstrap> join(UniqueId const& id, int rank, int ranks) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
  bootstrap->initialize(id, 20s);
  return bootstrap;
}

// What is wrong with the fault that a communicator must have soon.
std::string awaitFault(Communicator const& communicator, int dead, Ending const& ending) {
  auto const start = Clock::now();
  if (!hostWait([&] { return communicator.fault().has_value(); }, 5s)) return "no fault";
  auto const passed = ending.since(start);
  auto const fault = communicator.fault();
  auto const begin = "rank " + std::to_string(communicator.rank()) + ": rank " + std::to_string(dead) + " is gone (";
  if (fault->code() != ErrorCode::remoteError) return "another code: " + textOf(fault);
  if (!textOf(fault).starts_with(begin)) return "another text: " + textOf(fault);
  if (passed > noticed) return "late";
  // However often it is asked, and so are kernels.
  for (int i = 0; i < 2; ++i) {
    if (textOf(errorOf([&] { communicator.checkReports(); })) != textOf(fault)) return "another report";
    if (std::atomic_ref(communicator.watch()->abort).load() == 0) return "kernels may wait";
  }
  return "";
}

}  // namespace

// First, while this process has no threads.
TEST_CASE("a killed rank is a fault of all communicators with it, as they number it, and of no other") {
  fake(0);
  for (int const ranks : {2, 3, 5}) {
    for (int const victim : {0, ranks - 1}) {
      CAPTURE(ranks);
      CAPTURE(victim);
      Ending const ending;
      UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
      auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
        auto const bootstrap = join(id, rank, ranks);
        Communicator const communicator(bootstrap, fake(rank));
        std::vector<int> backwards(static_cast<std::size_t>(ranks));
        std::iota(backwards.rbegin(), backwards.rend(), 0);
        auto const group = communicator.shrink(backwards);
        auto rest = backwards;
        std::erase(rest, victim);
        auto const without = rank == victim ? nullptr : communicator.shrink(rest);
        bootstrap->barrier();
        if (rank == victim) ending.kill();
        auto wrong = awaitFault(communicator, victim, ending);
        wrong += awaitFault(*group, ranks - 1 - victim, ending);
        // Whoever asks later hears as well.
        std::string heard;
        auto const listening =
            BootstrapAccess::listen(*bootstrap, [&](int dead, std::string const&) { heard += std::to_string(dead); });
        if (heard != std::to_string(victim)) wrong += "heard: " + heard;
        std::vector<int> const left(rest.rbegin(), rest.rend());
        if (communicator.survivors() != left) wrong += "other survivors";
        auto const next = communicator.shrink(left);
        for (int round = 0; round < 5; ++round) next->bootstrap()->barrier();
        for (auto const* const sound : {next.get(), without.get()}) {
          sound->checkReports();
          if (sound->fault()) wrong += "a fault of those that are left: " + textOf(sound->fault());
        }
        ending.stay(ranks - 1);
        return wrong;
      });
      for (int rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        CHECK(texts[static_cast<std::size_t>(rank)] == (rank == victim ? "killed by signal 9" : ""));
      }
    }
  }
}

TEST_CASE(
    "a rank that destroys what it has, or calls exit() without, is a fault of nobody; one that calls _exit() is") {
  fake(0);
  enum class By { destroying, exiting, ending };
  for (auto const by : {By::destroying, By::exiting, By::ending}) {
    for (int const leaver : {0, 2}) {
      CAPTURE(static_cast<int>(by));
      CAPTURE(leaver);
      Ending const ending;
      UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
      auto const texts = runProcesses(4, [&](int rank) -> std::string {
        auto* const bootstrap = new std::shared_ptr<TcpBootstrap>(join(id, rank, 4));
        auto* const communicator = new Communicator(*bootstrap, fake(rank));
        (*bootstrap)->barrier();
        if (rank == leaver) {
          if (by == By::exiting) std::exit(0);
          if (by == By::ending) ::_exit(0);
          delete communicator;
          delete bootstrap;
          return "";
        }
        std::string wrong;
        if (by == By::ending) {
          wrong = awaitFault(*communicator, leaver, ending);
        } else {
          std::this_thread::sleep_for(300ms);
          if (auto const fault = communicator->fault()) wrong = fault->what();
        }
        ending.stay(3);
        return wrong;
      });
      for (auto const& text : texts) CHECK(text == "");
    }
  }
}

TEST_CASE("the rank that died first is named first, not one that dies because of it") {
  fake(0);
  for (int round = 0; round < 20; ++round) {
    Ending const ending;
    UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    int const first = round % 5;
    auto const texts = runProcesses(5, [&](int rank) -> std::string {
      auto const bootstrap = join(id, rank, 5);
      Communicator const communicator(bootstrap, fake(rank));
      bootstrap->barrier();
      if (rank == first) ending.kill();
      if (rank == (first + 1) % 5 || rank == (first + 2) % 5) {
        while (!communicator.fault()) std::this_thread::yield();
        ::raise(SIGKILL);
      }
      std::this_thread::sleep_for(100ms);
      auto wrong = awaitFault(communicator, first, ending);
      ending.stay(2);
      return wrong;
    });
    for (int const rank : {(first + 3) % 5, (first + 4) % 5}) CHECK(texts[static_cast<std::size_t>(rank)] == "");
  }
}

TEST_CASE("who listens hears once, and no more when it has ended to, whenever the news comes") {
  for (int round = 0; round < 10; ++round) {
    UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    Ending const ending;
    auto const texts = runProcesses(2, [&](int rank) -> std::string {
      auto const bootstrap = join(id, rank, 2);
      bootstrap->barrier();
      if (rank == 1) {
        std::this_thread::sleep_for(10ms);
        ending.kill();
      }
      auto const listen = [&]() -> std::string {
        for (auto const start = Clock::now(); Clock::now() - start < 5s;) {
          std::atomic<int> heard{0};
          auto listening = BootstrapAccess::listen(*bootstrap, [&](int, std::string const&) {
            std::this_thread::sleep_for(2ms);
            ++heard;
          });
          listening.reset();
          if (heard > 1) return "heard twice";
          if (heard == 1) return "";
        }
        return "not heard";
      };
      std::string other;
      std::thread thread([&] { other = listen(); });
      auto const wrong = listen();
      thread.join();
      return wrong + other;
    });
    CHECK(texts[0] == "");
  }
}

TEST_CASE("a child that is made while the news is told may drop what it got, and exit()") {
  fake(0);
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    auto bootstrap = join(id, rank, 2);
    auto communicator = std::make_unique<Communicator>(bootstrap, fake(rank));
    bootstrap->barrier();
    if (rank == 1) ::raise(SIGKILL);
    std::atomic<bool> telling{false};
    auto listening = BootstrapAccess::listen(*bootstrap, [&](int, std::string const&) {
      telling = true;
      std::this_thread::sleep_for(300ms);
    });
    while (!telling) std::this_thread::yield();
    auto const child = ::fork();
    if (child == 0) {
      ::alarm(5);
      listening.reset();
      communicator.reset();
      bootstrap.reset();
      std::exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status == 0 ? "" : "the child ended with status " + std::to_string(status);
  });
  CHECK(texts[0] == "");
}
