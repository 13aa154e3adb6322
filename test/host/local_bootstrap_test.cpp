// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>

#include "host/bootstrap_checks.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/wait.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

TEST_CASE("ranks as threads") {
  for (int ranks : {1, 2, 3, 7, 16}) {
    CAPTURE(ranks);
    auto const world = LocalBootstrap::create(ranks, 20s);
    auto const errors = runThreads(ranks, [&](int rank) {
      std::string const wrong = exerciseBootstrap(*world[static_cast<std::size_t>(rank)]);
      if (!wrong.empty()) throw Error(ErrorCode::internalError, wrong);
    });
    CHECK(allErrors(errors) == "");
    CHECK(world[0]->getNranksPerNode() == ranks);
  }
}

TEST_CASE("a barrier holds until the last rank is there") {
  int const ranks = 5;
  auto const world = LocalBootstrap::create(ranks, 20s);
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
  auto const errors = runThreads(ranks, [&](int rank) {
    for (int round = 1; round <= 20; ++round) {
      if (rank == round % ranks) std::this_thread::sleep_for(1ms);
      ++arrived;
      world[static_cast<std::size_t>(rank)]->barrier();
      if (arrived < round * ranks) early = true;
      world[static_cast<std::size_t>(rank)]->barrier();
    }
  });
  CHECK(allErrors(errors) == "");
  CHECK_FALSE(early);
}

TEST_CASE("a wait that does not end says who waited for whom") {
  auto const world = LocalBootstrap::create(3, 50ms);
  int value = 0;
  auto error = errorOf([&] { world[1]->recv(&value, sizeof value, 2, 9); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(error, "rank 1: waited 50 ms for a message with tag 9 of rank 2"), error->what());
  error = errorOf([&] { world[0]->barrier(); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::timeout);
}

TEST_CASE("a rank that leaves ends the waits for it, after what it sent") {
  auto world = LocalBootstrap::create(2, 10s);
  int const sent = 42;
  world[1]->send(&sent, sizeof sent, 0, 3);
  world[1].reset();
  int value = 0;
  world[0]->recv(&value, sizeof value, 1, 3);
  CHECK(value == 42);
  auto const start = std::chrono::steady_clock::now();
  auto const error = errorOf([&] { world[0]->recv(&value, sizeof value, 1, 3); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::remoteError);
  CHECK_MESSAGE(mentions(error, "rank 1 is gone"), error->what());
  CHECK(errorOf([&] { world[0]->send(&value, sizeof value, 1, 3); })->code() == ErrorCode::remoteError);
  CHECK(std::chrono::steady_clock::now() - start < 5s);
}

TEST_CASE("bad arguments are named") {
  auto const world = LocalBootstrap::create(2, 100ms);
  Bootstrap& bootstrap = *world[0];
  int value = 0;
  CHECK(mentions(errorOf([&] { bootstrap.send(&value, 4, 2, 0); }), "rank 0: send names rank 2, but ranks are 0 to 1"));
  CHECK(mentions(errorOf([&] { bootstrap.recv(&value, 4, -1, 0); }), "names rank -1"));
  CHECK(mentions(errorOf([&] { bootstrap.recv(&value, 4, 1, -5); }), "tag -5"));
  CHECK(mentions(errorOf([&] { bootstrap.send(&value, 4, 1, 1 << 24); }), "tag 16777216"));
  CHECK(mentions(errorOf([&] { bootstrap.groupBarrier({1}); }), "does not hold the calling rank"));
  CHECK(mentions(errorOf([&] { bootstrap.groupBarrier({0, 1, 0}); }), "names a rank twice"));
  CHECK(mentions(errorOf([&] { bootstrap.groupBarrier({0, 3}); }), "names rank 3"));
  CHECK(mentions(errorOf([] { LocalBootstrap::create(0); }), "0 ranks"));
  for (auto const& error : {errorOf([&] { bootstrap.send(&value, 4, 2, 0); })}) {
    CHECK(error->code() == ErrorCode::invalidUsage);
  }
  world[1]->send(&value, 4, 0, 0);
  CHECK(mentions(errorOf([&] { bootstrap.recv(&value, 2, 1, 0); }), "expects 2 bytes, but rank 1 sent 4"));
}

TEST_CASE("group barriers over different ranks do not pass for one another") {
  auto const world = LocalBootstrap::create(2, 2s);
  auto const errors = runThreads(2, [&](int rank) {
    world[static_cast<std::size_t>(rank)]->groupBarrier(rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0});
  });
  CHECK(mentions(errors[0], "same ranks in the same order"));
  CHECK(mentions(errors[1], "same ranks in the same order"));
}

namespace {

std::atomic<int> waitsSeen{0};

bool countingWait(std::function<bool()> const& ready, std::chrono::nanoseconds limit) {
  ++waitsSeen;
  auto const start = std::chrono::steady_clock::now();
  while (!ready()) {
    if (std::chrono::steady_clock::now() - start > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TEST_CASE("a machine's own way of waiting is used, on the threads that have it") {
  waitsSeen = 0;
  auto const world = LocalBootstrap::create(2, 5s);
  auto const errors = runThreads(2, [&](int rank) {
    if (rank == 0) setThreadHostWait(countingWait);
    world[static_cast<std::size_t>(rank)]->barrier();
    setThreadHostWait(nullptr);
  });
  CHECK(allErrors(errors) == "");
  CHECK(waitsSeen == 1);
}

TEST_CASE("hostWait keeps its limit and returns when the condition holds") {
  int looks = 0;
  CHECK(hostWait([&] { return ++looks == 100; }, 10s));
  CHECK(looks == 100);
  auto const start = std::chrono::steady_clock::now();
  CHECK_FALSE(hostWait([] { return false; }, 30ms));
  auto const passed = std::chrono::steady_clock::now() - start;
  CHECK(passed >= 30ms);
  CHECK(passed < 5s);
  looks = 0;
  CHECK_FALSE(hostWait([&] { return ++looks == 2; }, 0ns));
  CHECK(looks == 1);
}
