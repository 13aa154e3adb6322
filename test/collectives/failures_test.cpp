// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives after a failure: the next calls are right, or throw on every rank, and then are right again.
#include <functional>
#include <string>
#include <vector>

#include "collectives/failing_calls.hpp"
#include "mscclpp/host/wait.hpp"

using namespace mscclpp_test;

namespace {

using namespace std::chrono_literals;

constexpr int ranks = 3;
constexpr auto kernelLimit = 1s;

// Runs on simulated GPUs on which a wait gives up once nobody can go on.
std::vector<Outcomes> outcomesOf(std::function<void(Communicator&, Outcomes&)> const& body, std::uint64_t seed = 1) {
  if (Device::count(DeviceKind::sim) < ranks) sim::install({.devices = ranks});
  std::vector<Outcomes> all(ranks);
  sim::run({.ranks = ranks, .seed = seed, .waitsExpire = true}, [&](sim::RankContext& context) {
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    communicator.setTimeLimit(kernelLimit);
    body(communicator, all[static_cast<std::size_t>(context.rank())]);
  });
  return all;
}

// Comes when the others have given up.
void beLate(int limits = 3) {
  hostWait([] { return false; }, limits * kernelLimit);
}

// By every algorithm that can: body(calls, outcomes of this rank).
void forEachAlgorithm(std::function<void(Communicator&, Calls&, Outcomes&)> const& body,
                      std::function<void(std::string const&, std::vector<Outcomes> const&)> const& check,
                      std::uint64_t seeds = 2) {
  auto const algorithms = AlgorithmCollection::defaults();
  std::size_t ran = 0;
  for (auto const& algorithm : algorithms.algorithms()) {
    if (algorithm->collective() == Collective::barrier) continue;
    auto const what = std::string(nameOf(algorithm->collective())) + " by " + algorithm->name();
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      int done = 0;
      auto const all = outcomesOf(
          [&](Communicator& communicator, Outcomes& outcomes) {
            Calls calls(communicator, *algorithm);
            if (!calls.refused()) body(communicator, calls, outcomes);
            // Nobody unmaps what others may still use.
            ++done;
            CHECK(hostWait([&] { return done == ranks; }, 1000s));
          },
          seed);
      if (all[0].empty()) continue;
      ++ran;
      check(what, all);
    }
  }
  CHECK(ran > 40 * seeds);
}

}  // namespace

TEST_CASE("after a late rank, every algorithm is right again or throws on all ranks") {
  for (int late = 0; late < ranks; ++late) {
    forEachAlgorithm(
        [&](Communicator& communicator, Calls& calls, Outcomes& outcomes) {
          for (int call = 0; call < 6; ++call) {
            if (call == 2 && communicator.rank() == late) beLate();
            outcomes.push_back(calls.make());
          }
        },
        [](std::string const& what, std::vector<Outcomes> const& all) { checkRecovery(all, 2, what); });
  }
}

TEST_CASE("a rank that comes to the first call of all when the others have given it up") {
  auto const algorithms = AlgorithmCollection::defaults();
  auto const& algorithm = *algorithms.at(Collective::allReduce, "oneshot_ll16");
  for (int late = 0; late < ranks; ++late) {
    int done = 0;
    auto const all = outcomesOf([&](Communicator& communicator, Outcomes& outcomes) {
      Calls calls(communicator, algorithm);
      if (communicator.rank() == late) hostWait([] { return false; }, 31s);
      for (int call = 0; call < 6; ++call) outcomes.push_back(calls.make());
      ++done;
      CHECK(hostWait([&] { return done == ranks; }, 1000s));
    });
    checkRecovery(all, 1, "allreduce");
  }
}

TEST_CASE("calls that wait behind one that gives up are never silently wrong") {
  forEachAlgorithm(
      [&](Communicator& communicator, Calls& calls, Outcomes& outcomes) {
        for (int batch = 0; batch < 5; ++batch) {
          if (batch == 1 && communicator.rank() == 1) beLate();
          outcomes.push_back(calls.make(3));
        }
      },
      [](std::string const& what, std::vector<Outcomes> const& all) { checkRecovery(all, 1, what); });
}

TEST_CASE("a rank that leaves a call out does not take the others' old data for new") {
  forEachAlgorithm(
      [&](Communicator& communicator, Calls& calls, Outcomes& outcomes) {
        outcomes.push_back(calls.make());
        if (communicator.rank() == 1) {
          calls.next();
          beLate(100);
        } else {
          outcomes.push_back(calls.make());
        }
        outcomes.push_back(calls.make());
      },
      [](std::string const& what, std::vector<Outcomes> const& all) {
        CHECK_MESSAGE(!all[1].back().empty(), what, ": rank 1's call must fail");
      },
      1);
}

TEST_CASE("ranks late by turns, and twice, find together again") {
  forEachAlgorithm(
      [&](Communicator& communicator, Calls& calls, Outcomes& outcomes) {
        for (int call = 0; call < 12; ++call) {
          if (call % 4 == 1 && communicator.rank() == call / 4) beLate(1 + call);
          outcomes.push_back(calls.make());
        }
      },
      [](std::string const& what, std::vector<Outcomes> const& all) {
        for (auto const& rank : all) CHECK_MESSAGE(rank.back().empty(), what, ": ", rank.back());
      },
      1);
}

TEST_CASE("ranks that have made different numbers of calls start anew together") {
  forEachAlgorithm(
      [&](Communicator& communicator, Calls& calls, Outcomes& outcomes) {
        outcomes.push_back(calls.make());
        if (communicator.rank() == 2) {
          beLate();
          (void)calls.make();
        } else {
          for (int call = 0; call < 3; ++call) (void)calls.make();
        }
        while (calls.made() < 6) calls.next();
        releaseContexts(communicator);
        outcomes.push_back(calls.make());
      },
      [](std::string const& what, std::vector<Outcomes> const& all) {
        for (auto const& rank : all) CHECK_MESSAGE(rank.back().empty(), what, ": ", rank.back());
      },
      1);
}

TEST_CASE("where memory is refused to one rank all throw, and the next call is right at once") {
  auto const algorithms = AlgorithmCollection::defaults();
  auto const& algorithm = *algorithms.at(Collective::allReduce, "oneshot_ll16");
  int done = 0;
  auto const all = outcomesOf([&](Communicator& communicator, Outcomes& outcomes) {
    std::vector<DeviceMemory> ballast;
    auto const device = communicator.device();
    auto const fillMemory = [&] {
      for (auto size = device.properties().memoryBytes; size >= 4096;) {
        try {
          ballast.emplace_back(device, size);
        } catch (Error const&) {
          size /= 2;
        }
      }
    };
    Stream const stream(device);
    Exchange const exchange(communicator, Collective::allReduce, 130, 0, true, 1, false);
    if (communicator.rank() == 1) fillMemory();
    std::string text;
    try {
      algorithm.execute(communicator, stream, exchange.call(true));
    } catch (Error const& error) {
      text = error.what();
    }
    outcomes.push_back(text);
    ballast.clear();
    algorithm.execute(communicator, stream, exchange.call(true));
    communicator.synchronize(stream);
    CHECK(exchange.wrong() == 0);
    ++done;
    CHECK(hostWait([&] { return done == ranks; }, 1000s));
  });
  for (int rank = 0; rank < ranks; ++rank) {
    checkContains(all[static_cast<std::size_t>(rank)].at(0), "out of memory on simulated device 1");
    if (rank != 1) checkContains(all[static_cast<std::size_t>(rank)].at(0), "rank 1 failed while the team was made");
  }
}

TEST_CASE("a rank that rejoins by itself where others make a call is named, and the next calls are right") {
  auto const algorithms = AlgorithmCollection::defaults();
  auto const& algorithm = *algorithms.at(Collective::allReduce, "oneshot_ll16");
  int done = 0;
  auto const all = outcomesOf([&](Communicator& communicator, Outcomes& outcomes) {
    Calls calls(communicator, algorithm);
    outcomes.push_back(calls.make());
    if (communicator.rank() == 1) beLate();
    outcomes.push_back(calls.make());
    if (communicator.rank() == 1) {
      communicator.rejoin({std::byte{1}});
      calls.next();
      outcomes.push_back("rejoined");
    } else {
      outcomes.push_back(calls.make());
    }
    releaseContexts(communicator);  // since it has made a call fewer
    outcomes.push_back(calls.make());
    ++done;
    CHECK(hostWait([&] { return done == ranks; }, 1000s));
  });
  for (auto const& rank : all) {
    if (&rank != &all[1]) checkContains(rank[2], "rank 1 calls Communicator::rejoin()");
    CHECK_MESSAGE(rank.back().empty(), rank.back());
  }
}

TEST_CASE("after an abort every later call throws on all ranks") {
  forEachAlgorithm(
      [&](Communicator& communicator, Calls& calls, Outcomes& outcomes) {
        outcomes.push_back(calls.make());
        if (communicator.rank() == 2) communicator.abort();
        for (int call = 0; call < 3; ++call) outcomes.push_back(calls.make());
      },
      [](std::string const& what, std::vector<Outcomes> const& all) {
        for (auto const& rank : all) {
          CHECK_MESSAGE(rank.front().empty(), what);
          CHECK_MESSAGE(!rank.back().empty(), what);
        }
      },
      1);
}
