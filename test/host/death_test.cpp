// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank that is killed, at every stage after joining: all others learn of it at once, and by its right name.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "host/bootstrap_checks.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "support/ending.hpp"
#include "support/quiet_log.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

struct Stage {
  char const* name;
  std::function<void(Bootstrap&)> before;             // by all
  std::function<void(Bootstrap&, int victim)> after;  // by all but the victim
};

std::vector<Stage> const stages{
    {"joined, barrier", [](Bootstrap&) {}, [](Bootstrap& b, int) { b.barrier(); }},
    {"joined, allGather", [](Bootstrap&) {},
     [](Bootstrap& b, int) {
       std::vector<int> all(static_cast<std::size_t>(b.getNranks()));
       b.allGather(all.data(), sizeof(int));
     }},
    {"joined, receive from it", [](Bootstrap&) {},
     [](Bootstrap& b, int victim) {
       int value = 0;
       b.recv(&value, sizeof value, victim, 1);
     }},
    {"joined, each waits for the next",  // those who wait for a healthy rank, too
     [](Bootstrap&) {},
     [](Bootstrap& b, int) {
       int value = 0;
       b.recv(&value, sizeof value, (b.getRank() + 1) % b.getNranks(), 1);
     }},
    {"after a barrier", [](Bootstrap& b) { b.barrier(); }, [](Bootstrap& b, int) { b.barrier(); }},
    {"after all have spoken to all",
     [](Bootstrap& b) {
       for (int peer = 0; peer < b.getNranks(); ++peer) b.send(&peer, sizeof peer, peer, 0);
       for (int peer = 0; peer < b.getNranks(); ++peer) {
         int value = 0;
         b.recv(&value, sizeof value, peer, 0);
       }
     },
     [](Bootstrap& b, int) {
       std::vector<int> everyone;
       for (int rank = b.getNranks() - 1; rank >= 0; --rank) everyone.push_back(rank);
       b.groupBarrier(everyone);
     }},
};

// What is wrong with how a rank learned of the victim's end, which it did by `call`.
std::string learns(int victim, std::function<void()> const& call, Ending const* ending = nullptr) {
  auto const start = Clock::now();
  auto const error = errorOf(call);
  auto const end = Clock::now();
  if (!error) return "no error";
  if (error->code() != ErrorCode::remoteError) return "another kind of error: " + textOf(error);
  if (!mentions(error, "rank " + std::to_string(victim) + " is gone")) return "another name: " + textOf(error);
  auto const passed = end - std::max(start, ending == nullptr ? start : ending->time());
  if (passed > noticed) {
    return "after " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(passed).count()) + " ms";
  }
  return "";
}

}  // namespace

// First, while this process has no threads.
TEST_CASE("a killed process is noticed by all within a second, by its name, also by those without a socket to it") {
  for (int const ranks : {3, 4, 6}) {
    for (auto const& stage : stages) {
      for (int const victim : {0, 1, ranks - 1}) {
        CAPTURE(ranks);
        CAPTURE(stage.name);
        CAPTURE(victim);
        Ending const ending;
        UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
        auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
          TcpBootstrap bootstrap(rank, ranks);
          bootstrap.initialize(id, 20s);
          if (rank == victim) {
            stage.before(bootstrap);
            ending.kill();
          }
          // Whoever is late may still be in what comes before.
          auto const call = [&] {
            stage.before(bootstrap);
            stage.after(bootstrap, victim);
          };
          auto const wrong = learns(victim, call, &ending);
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
}

TEST_CASE("a rank that did not come to a collective because it computes does not hide the death of another") {
  int const ranks = 4;
  Ending const ending;
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    TcpBootstrap bootstrap(rank, ranks);
    bootstrap.initialize(id, 20s);
    bootstrap.barrier();
    if (rank == 3) {
      std::this_thread::sleep_for(300ms);  // until the others are through: what a killed rank has sent may be lost
      ending.kill();
    }
    if (rank == 2) std::this_thread::sleep_for(2s);
    auto const wrong = learns(
        3, [&] { bootstrap.barrier(); }, &ending);
    ending.stay(3);
    return wrong;
  });
  for (int rank : {0, 1, 2}) CHECK(texts[static_cast<std::size_t>(rank)] == "");
}

TEST_CASE("rank 0 and then another are killed: the rest learns of both") {
  int const ranks = 5;
  Ending const first;
  Ending const second;
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    TcpBootstrap bootstrap(rank, ranks);
    bootstrap.initialize(id, 20s);
    if (rank == 0) first.kill();
    if (auto const wrong = learns(
            0, [&] { bootstrap.barrier(); }, &first);
        !wrong.empty())
      return wrong;
    std::vector<int> const rest{1, 2, 3, 4};
    if (rank == 4) {
      bootstrap.groupBarrier(rest);
      second.kill();
    }
    auto const wrong = learns(
        4,
        [&] {
          for (;;) bootstrap.groupBarrier(rest);
        },
        &second);
    second.stay(3);
    return wrong;
  });
  for (int rank : {1, 2, 3}) CHECK(texts[static_cast<std::size_t>(rank)] == "");
}

TEST_CASE("a rank that has done its part and ends without a word harms nobody") {
  for (int round = 0; round < 20; ++round) {
    UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    auto const texts = runProcesses(4, [&](int rank) -> std::string {
      auto* const bootstrap = new TcpBootstrap(rank, 4);
      bootstrap->initialize(id, 20s);
      bootstrap->barrier();
      return "";
    });
    for (auto const& text : texts) CHECK(text == "");
  }
}

TEST_CASE("a rank that leaves before a collective is named to all, and not those that leave because of it") {
  auto const check = [](int ranks, std::function<std::shared_ptr<Bootstrap>(int)> const& make) {
    for (int const leaver : {0, ranks - 1}) {
      for (bool const othersStay : {true, false}) {
        CAPTURE(ranks);
        CAPTURE(leaver);
        CAPTURE(othersStay);
        std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
        std::atomic<int> finished{0};
        auto const errors = runThreads(ranks, [&](int rank) {
          auto bootstrap = make(rank);
          if (rank == leaver) {
            bootstrap->barrier();
            return;
          }
          wrong[static_cast<std::size_t>(rank)] = learns(leaver, [&] {
            bootstrap->barrier();
            bootstrap->barrier();
          });
          ++finished;
          while (othersStay && finished < ranks - 1) std::this_thread::sleep_for(1ms);
        });
        CHECK(allErrors(errors) == "");
        for (auto const& text : wrong) CHECK(text == "");
      }
    }
  };
  for (int const ranks : {3, 6}) {
    std::vector<std::shared_ptr<Bootstrap>> local;
    std::atomic<int> taken{0};
    check(ranks, [&](int rank) {
      static std::mutex mutex;
      std::lock_guard const lock(mutex);
      if (taken++ % ranks == 0) local = LocalBootstrap::create(ranks, 20s);
      return std::exchange(local[static_cast<std::size_t>(rank)], nullptr);
    });
    UniqueId id;
    std::atomic<int> asked{0};
    check(ranks, [&](int rank) {
      static std::mutex mutex;
      {
        std::lock_guard const lock(mutex);
        if (asked++ % ranks == 0) id = TcpBootstrap::createUniqueId("127.0.0.1:0");
      }
      auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
      bootstrap->initialize(id, 20s);
      return bootstrap;
    });
  }
}
