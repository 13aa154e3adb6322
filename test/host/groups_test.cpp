// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators of the same ranks, from shrink(), and their parent, all at once, a thread each.
#include <doctest/doctest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "host/bootstrap/bootstrap_access.hpp"
#include "host/bootstrap_checks.hpp"
#include "host/fake_runtime.hpp"
#include "host/foreign_bootstrap.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/wait.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

// One bootstrap per rank, of each kind.
std::vector<std::shared_ptr<Bootstrap>> make(std::string const& kind, int ranks) {
  auto result = LocalBootstrap::create(ranks, 20s);
  if (kind == "foreign") {
    for (auto& one : result) one = std::make_shared<ForeignBootstrap>(one);
  }
  if (kind == "tcp") {
    auto const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    auto const errors = runThreads(ranks, [&](int rank) {
      auto const bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
      bootstrap->initialize(id, 20s);
      result[static_cast<std::size_t>(rank)] = bootstrap;
    });
    REQUIRE(allErrors(errors) == "");
  }
  return result;
}

void work(Bootstrap& bootstrap, int round) {
  int const ranks = bootstrap.getNranks();
  std::vector<int> all(static_cast<std::size_t>(ranks), -1);
  all[static_cast<std::size_t>(bootstrap.getRank())] = 1000 * round + bootstrap.getRank();
  bootstrap.allGather(all.data(), sizeof(int));
  for (int rank = 0; rank < ranks; ++rank) {
    if (all[static_cast<std::size_t>(rank)] != 1000 * round + rank) throw Error(ErrorCode::internalError, "wrong part");
  }
  bootstrap.barrier();
  int const value = round;
  int got = -1;
  bootstrap.send(&value, sizeof value, (bootstrap.getRank() + 1) % ranks, 5);
  bootstrap.recv(&got, sizeof got, (bootstrap.getRank() + ranks - 1) % ranks, 5);
  if (got != round) throw Error(ErrorCode::internalError, "wrong message");
}

}  // namespace

TEST_CASE("groups of the same ranks, groups of groups and the parent, a thread each, hundreds of rounds") {
  fake(0);
  int const ranks = 3;
  for (std::string const kind : {"local", "tcp", "foreign"}) {
    CAPTURE(kind);
    auto const bootstraps = make(kind, ranks);
    auto const errors = runThreads(ranks, [&](int rank) {
      Communicator const parent(bootstraps[static_cast<std::size_t>(rank)], fake(rank));
      std::vector<std::unique_ptr<Communicator>> groups;
      groups.push_back(parent.shrink({0, 1, 2}));
      groups.push_back(parent.shrink({2, 0, 1}));
      groups.push_back(parent.shrink({0, 1, 2}));
      groups.push_back(groups[1]->shrink({1, 2, 0}));
      groups.push_back(groups[1]->shrink({1, 2, 0}));
      std::vector<Bootstrap*> all{parent.bootstrap().get()};
      for (auto const& group : groups) all.push_back(group->bootstrap().get());
      std::vector<std::optional<Error>> wrong(all.size());
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < all.size(); ++i) {
        threads.emplace_back([&, i] {
          wrong[i] = errorOf([&] {
            for (int round = 0; round < 300; ++round) work(*all[i], round);
          });
        });
      }
      for (auto& thread : threads) thread.join();
      if (auto const text = allErrors(wrong); !text.empty()) throw Error(ErrorCode::internalError, text);
    });
    CHECK(allErrors(errors) == "");
  }
}

TEST_CASE("groups are made from several threads at once, each with ranks of its own") {
  fake(0);
  int const ranks = 4;
  std::vector<std::vector<int>> const lists{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}};
  for (std::string const kind : {"local", "tcp", "foreign"}) {
    CAPTURE(kind);
    auto const bootstraps = make(kind, ranks);
    auto const errors = runThreads(ranks, [&](int rank) {
      Communicator const parent(bootstraps[static_cast<std::size_t>(rank)], fake(rank));
      std::vector<std::optional<Error>> wrong(lists.size());
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < lists.size(); ++i) {
        threads.emplace_back([&, i] {
          wrong[i] = errorOf([&] {
            for (int round = 0; round < 20; ++round) work(*parent.shrink(lists[i])->bootstrap(), round);
          });
        });
      }
      for (auto& thread : threads) thread.join();
      if (auto const text = allErrors(wrong); !text.empty()) throw Error(ErrorCode::internalError, text);
      parent.bootstrap()->barrier();
    });
    CHECK(allErrors(errors) == "");
  }
}

TEST_CASE("ranks that have made different numbers of groups make the next one together") {
  fake(0);
  auto const bootstraps = make("local", 3);
  auto const errors = runThreads(3, [&](int rank) {
    Communicator const parent(bootstraps[static_cast<std::size_t>(rank)], fake(rank));
    if (rank < 2) work(*parent.shrink({0, 1})->bootstrap(), 1);
    if (rank > 0) work(*parent.shrink({1, 2})->bootstrap(), 2);
    work(*parent.shrink({0, 1, 2})->bootstrap(), 3);
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("what a group, and the exercise of every bootstrap, finds over a bootstrap of the user's") {
  fake(0);
  auto const bootstraps = make("foreign", 3);
  auto const errors = runThreads(3, [&](int rank) {
    Communicator const parent(bootstraps[static_cast<std::size_t>(rank)], fake(rank));
    auto const group = parent.shrink({2, 1, 0});
    auto wrong = exerciseBootstrap(*group->bootstrap());
    wrong += exerciseBootstrap(*parent.bootstrap());
    if (!wrong.empty()) throw Error(ErrorCode::internalError, wrong);
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("a rank whose device is lost is a fault of all communicators with it, as they number it, and of no other") {
  fake(0);
  int victimsDevice = FakeRuntime::devices;  // lost for the rest of this process
  for (auto const* const kind : {"local", "tcp"}) {
    CAPTURE(kind);
    --victimsDevice;
    auto const bootstraps = make(kind, 3);
    auto const errors = runThreads(3, [&](int rank) {
      auto const device = fake(rank == 1 ? victimsDevice : rank);
      Communicator const parent(bootstraps[static_cast<std::size_t>(rank)], device);
      auto const group = rank == 0 ? nullptr : parent.shrink({2, 1});
      auto const without = rank == 1 ? nullptr : parent.shrink({0, 2});
      parent.bootstrap()->barrier();
      if (rank == 1) device.runtime().lose(device.ordinal, "an illegal address");
      auto const expect = [&](Communicator const& communicator, std::string const& part, ErrorCode code) {
        hostWait([&] { return communicator.fault().has_value(); }, 1s);
        auto const fault = communicator.fault();
        if (fault && fault->code() == code && std::string(fault->what()).find(part) != std::string::npos) return;
        throw Error(ErrorCode::internalError, fault ? fault->what() : "no fault");
      };
      auto const own = rank == 1;
      auto const code = own ? ErrorCode::deviceError : ErrorCode::remoteError;
      expect(parent, own ? "an illegal address" : "rank 1 is gone (it can do nothing with its device", code);
      if (group) expect(*group, own ? "rank 1: " : "rank 1 is gone", code);
      // Whoever comes later hears at once.
      if (own) expect(Communicator(parent.shrink({1})->bootstrap(), device), "an illegal address", code);
      if (without && without->fault()) throw Error(ErrorCode::internalError, without->fault()->what());
      // Nobody hears only because others leave.
      if (without) without->bootstrap()->barrier();
    });
    CHECK(allErrors(errors) == "");
  }
}
