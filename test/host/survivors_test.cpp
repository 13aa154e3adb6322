// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who is left: all ranks that return from survivors() return the same, whenever another one ends.
#include <doctest/doctest.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <set>
#include <thread>

#include "host/fake_runtime.hpp"
#include "host/foreign_bootstrap.hpp"
#include "host/ranks.hpp"
#include "host/shared/members.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "support/quiet_log.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

struct Killed {};

// Ends before the message of that number that it sends in survivors(); -1: never.
struct Victim {
  int rank;
  int message;
};

struct Result {
  bool killed = false;
  std::string error;
  std::vector<int> list;
};

// Runs survivors() with victims; those that throw try once more.
std::vector<Result> runWith(int ranks, std::vector<Victim> const& victims, std::vector<int> const& endedBefore = {}) {
  std::vector<std::shared_ptr<ForeignBootstrap>> bootstraps;
  for (auto& one : LocalBootstrap::create(ranks, 10s)) {
    bootstraps.push_back(std::make_shared<ForeignBootstrap>(std::move(one)));
  }
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  runThreads(ranks, [&](int rank) {
    auto& result = results[static_cast<std::size_t>(rank)];
    auto const bootstrap = std::move(bootstraps[static_cast<std::size_t>(rank)]);
    Communicator const communicator(bootstrap, fake(rank));
    bootstrap->barrier();
    for (int const ended : endedBefore) {
      if (rank == ended) {
        result.killed = true;
        bootstrap->end();
        return;
      }
    }
    int sent = 0;
    bootstrap->beforeSending = [&] {
      for (auto const& victim : victims) {
        if (victim.rank == rank && victim.message == sent) {
          bootstrap->end();
          throw Killed{};
        }
      }
      ++sent;
    };
    try {
      try {
        result.list = communicator.survivors();
      } catch (Error const&) {
        result.list = communicator.survivors();
      }
    } catch (Error const& error) {
      result.error = error.what();
    } catch (Killed const&) {
      result.killed = true;
    }
    bootstrap->beforeSending = [] {};
  });
  return results;
}

// Those that returned agree on a list that holds them, and not those that were gone before.
std::string judge(std::vector<Result> const& results, std::vector<int> const& endedBefore) {
  std::set<std::vector<int>> lists;
  std::string text;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    auto const& result = results[rank];
    if (result.killed) continue;
    if (!result.error.empty()) text += result.error + "\n";
    if (result.list.empty()) continue;
    lists.insert(result.list);
    if (std::find(result.list.begin(), result.list.end(), static_cast<int>(rank)) == result.list.end()) {
      text += "rank " + std::to_string(rank) + " is not in its own list\n";
    }
    for (int const ended : endedBefore) {
      if (std::find(result.list.begin(), result.list.end(), ended) != result.list.end()) {
        text += "rank " + std::to_string(ended) + " was gone before\n";
      }
    }
  }
  if (lists.size() > 1) text += "different lists\n";
  return text;
}

}  // namespace

// First, while this process has no threads.
TEST_CASE("processes: one is killed before any collective, another between two calls") {
  fake(0);
  auto const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(5, [&](int rank) -> std::string {
    auto const bootstrap = std::make_shared<TcpBootstrap>(rank, 5);
    bootstrap->initialize(id, 10s);
    Communicator const communicator(bootstrap, fake(rank));
    // Nobody is still in what comes before.
    auto const killWhenAllCame = [](Bootstrap& common, int victim) {
      int value = 0;
      if (common.getRank() != victim) return common.send(&value, sizeof value, victim, 9);
      for (int peer = 0; peer < common.getNranks(); ++peer) {
        if (peer != victim) common.recv(&value, sizeof value, peer, 9);
      }
      ::raise(SIGKILL);
    };
    killWhenAllCame(*bootstrap, 0);
    if (!errorOf([&] { bootstrap->barrier(); })) return "no error";
    auto const left = communicator.survivors();
    if (left != std::vector<int>{1, 2, 3, 4}) return "other survivors";
    auto const group = communicator.shrink(left);
    group->bootstrap()->barrier();
    killWhenAllCame(*group->bootstrap(), 2);
    auto const error = errorOf([&] { group->bootstrap()->barrier(); });
    if (!mentions(error, "rank 3 is gone")) return textOf(error);
    auto const last = group->survivors();
    if (last != std::vector<int>{0, 1, 3}) return "other survivors of the group";
    auto const rest = group->shrink(last);
    for (int round = 0; round < 10; ++round) rest->bootstrap()->barrier();
    return "";
  });
  for (int rank : {1, 2, 4}) CHECK(texts[static_cast<std::size_t>(rank)] == "");
}

TEST_CASE("processes: one is stopped, also for ranks that have no socket to it; all others agree") {
  fake(0);
  constexpr int ranks = 6;
  constexpr int stopped = 5;
  auto const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const* const processes =
      static_cast<pid_t*>(::mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    auto const bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    bootstrap->initialize(id, 1s);
    Communicator const communicator(bootstrap, fake(rank));
    if (rank == stopped) *const_cast<pid_t*>(processes) = ::getpid();
    bootstrap->barrier();
    if (rank == stopped) {
      ::raise(SIGSTOP);
      return "";
    }
    std::this_thread::sleep_for(100ms);
    auto const left = communicator.survivors();
    if (rank == 0) ::kill(*processes, SIGKILL);
    return left == std::vector<int>{0, 1, 2, 3, 4} ? "" : "other survivors";
  });
  for (int rank = 0; rank < stopped; ++rank) CHECK(texts[static_cast<std::size_t>(rank)] == "");
}

TEST_CASE("whose step has waited in vain tells all, and they throw with it rather than wait for the silent one") {
  constexpr auto limit = 1000ms;
  constexpr int ranks = 4;
  constexpr int silent = 3;
  auto bootstraps = LocalBootstrap::create(ranks, limit);
  std::atomic<int> done{0};
  auto const errors = runThreads(ranks, [&](int rank) {
    Communicator const communicator(std::move(bootstraps[static_cast<std::size_t>(rank)]), fake(rank));
    communicator.bootstrap()->barrier();
    auto const begin = std::chrono::steady_clock::now();
    if (rank != silent) {
      Members const members("Team", *CommunicatorImpl::of(communicator), {});
      auto const error = errorOf([&] {
        members.together([&]() -> std::vector<std::byte> {
          if (rank == 2) return {};
          std::this_thread::sleep_for(limit - 100ms);
          throw Error(ErrorCode::timeout, "memory of rank 3 did not come");
        });
      });
      CHECK_MESSAGE(mentions(error, "memory of rank 3 did not come"), textOf(error));
      CHECK(std::chrono::steady_clock::now() - begin < limit + 300ms);
    }
    for (++done; done < ranks;) std::this_thread::sleep_for(1ms);
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("a rank that is in a call until its limit is not left out by one that asks at once who is left") {
  auto bootstraps = LocalBootstrap::create(2, 1s);
  std::vector<std::vector<int>> lists(2);
  auto const errors = runThreads(2, [&](int rank) {
    auto const at = static_cast<std::size_t>(rank);
    Communicator const communicator(std::move(bootstraps[at]), fake(rank));
    communicator.bootstrap()->barrier();
    if (rank == 1) {
      std::this_thread::sleep_for(200ms);
      CHECK(errorOf([&] { communicator.bootstrap()->barrier(); }));
    }
    lists[at] = communicator.survivors();
  });
  CHECK(allErrors(errors) == "");
  for (auto const& list : lists) CHECK(list == std::vector<int>{0, 1});
}

TEST_CASE("a rank in survivors() goes along with those that are still in rejoin(), and come next") {
  constexpr int ranks = 4;
  auto bootstraps = LocalBootstrap::create(ranks, 3s);
  std::vector<std::vector<int>> lists(ranks);
  auto const errors = runThreads(ranks, [&](int rank) {
    auto const at = static_cast<std::size_t>(rank);
    Communicator const communicator(std::move(bootstraps[at]), fake(rank));
    communicator.bootstrap()->barrier();
    if (rank == 3) return;
    if (rank != 0) {
      CHECK(mentions(errorOf([&] { communicator.rejoin(); }), "ranks [3] have ended"));
      std::this_thread::sleep_for(100ms);
    }
    lists[at] = communicator.survivors();
    communicator.shrink(lists[at])->bootstrap()->barrier();
  });
  CHECK(allErrors(errors) == "");
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(lists[rank] == std::vector<int>{0, 1, 2});
}

TEST_CASE("one rank ends before each of its messages") {
  fake(0);
  for (int const ranks : {3, 4, 5, 6}) {
    for (int victim = 0; victim < ranks; ++victim) {
      bool ended = true;
      for (int message = 0; ended; ++message) {
        auto const results = runWith(ranks, {{victim, message}});
        CAPTURE(ranks);
        CAPTURE(victim);
        CAPTURE(message);
        CHECK(judge(results, {}) == "");
        ended = results[static_cast<std::size_t>(victim)].killed;
      }
    }
  }
}

TEST_CASE("one has ended before, and two more end before each of their messages") {
  fake(0);
  int const ranks = 5;
  for (int first = 1; first < ranks; ++first) {
    for (int second = 1; second < ranks; ++second) {
      if (first == second) continue;
      for (int message = 0; message < 9; ++message) {
        for (int later = 0; later < 9; later += 2) {
          auto const results = runWith(ranks, {{first, message}, {second, later}}, {0});
          CAPTURE(first);
          CAPTURE(second);
          CAPTURE(message);
          CAPTURE(later);
          CHECK(judge(results, {0}) == "");
        }
      }
    }
  }
}

TEST_CASE("a rank that is silent is left out by the others, and learns that it was") {
  fake(0);
  int const ranks = 4;
  auto const bootstraps = LocalBootstrap::create(ranks, 300ms);
  std::vector<std::vector<int>> lists(ranks);
  auto const errors = runThreads(ranks, [&](int rank) {
    Communicator const communicator(bootstraps[static_cast<std::size_t>(rank)], fake(rank));
    if (rank == 1) std::this_thread::sleep_for(1500ms);
    lists[static_cast<std::size_t>(rank)] = communicator.survivors();
  });
  for (int const rank : {0, 2, 3}) {
    CHECK_FALSE(errors[static_cast<std::size_t>(rank)]);
    CHECK(lists[static_cast<std::size_t>(rank)] == std::vector<int>{0, 2, 3});
  }
  CHECK_MESSAGE(mentions(errors[1], "given this rank up"), textOf(errors[1]));
}

TEST_CASE("fewer than half of the ranks, and half without the first, do not go on by themselves") {
  fake(0);
  for (auto const& few : std::vector<std::vector<int>>{{1}, {2, 3}, {0}}) {
    int const ranks = 4;
    auto const bootstraps = LocalBootstrap::create(ranks, 200ms);
    auto const errors = runThreads(ranks, [&](int rank) {
      Communicator const communicator(bootstraps[static_cast<std::size_t>(rank)], fake(rank));
      if (std::find(few.begin(), few.end(), rank) != few.end()) communicator.survivors();
    });
    for (int const rank : few) {
      CHECK_MESSAGE(mentions(errors[static_cast<std::size_t>(rank)], "must not"),
                    textOf(errors[static_cast<std::size_t>(rank)]));
    }
  }
}

TEST_CASE("half of the ranks with the first go on") {
  fake(0);
  int const ranks = 4;
  auto const bootstraps = LocalBootstrap::create(ranks, 200ms);
  std::vector<std::vector<int>> lists(ranks);
  auto const errors = runThreads(ranks, [&](int rank) {
    Communicator const communicator(bootstraps[static_cast<std::size_t>(rank)], fake(rank));
    if (rank == 0 || rank == 3) lists[static_cast<std::size_t>(rank)] = communicator.survivors();
  });
  CHECK(allErrors(errors) == "");
  CHECK(lists[0] == std::vector<int>{0, 3});
  CHECK(lists[3] == std::vector<int>{0, 3});
}

TEST_CASE("whoever has thrown begins again, and takes the others along that are still at it") {
  fake(0);
  int const ranks = 3;
  auto const bootstraps = LocalBootstrap::create(ranks, 400ms);
  std::vector<std::vector<int>> lists(ranks);
  auto const errors = runThreads(ranks, [&](int rank) {
    Communicator const communicator(bootstraps[static_cast<std::size_t>(rank)], fake(rank));
    // Alone it may not go on; the others come while it tries again.
    if (rank == 2) CHECK(errorOf([&] { communicator.survivors(); }));
    if (rank != 2) std::this_thread::sleep_for(700ms);
    lists[static_cast<std::size_t>(rank)] = communicator.survivors();
  });
  CHECK(allErrors(errors) == "");
  for (auto const& list : lists) CHECK(list == std::vector<int>{0, 1, 2});
}
