// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "mscclpp/sim/explore.hpp"
#include "sim/sim_fixture.hpp"

using namespace simtest;
using sim::FindingKind;
using sim::Strategy;

namespace {

// Increments that are not atomic as a whole: two threads lose one of them only if one is interrupted.
void losesIncrements(sim::RankContext& rank) {
  DeviceArray<std::uint32_t> word(rank.device(), 1);
  Stream stream(rank.device());
  auto* p = word.data();
  stream.launch({.blocks = 1, .threads = 32}, [p] {
    auto const v = load<Order::relaxed, Scope::device>(p);
    store<Order::relaxed, Scope::device>(p, v + 1);
  });
  stream.synchronize();
  if (word[0] != 32) throw std::runtime_error("lost " + std::to_string(32 - word[0]) + " increments");
}

// Rank 1's signal is missing.
void waitsForEver(sim::RankContext& rank) {
  DeviceArray<std::uint32_t> flag(rank.device(), 1);
  Stream stream(rank.device());
  auto* p = flag.data();
  if (rank.rank() == 0) {
    stream.launch(
        {.blocks = 2, .threads = 32},
        [p] {
          if (arch::threadIndex() == 3) waitUntil(p, 5, nullptr, 1, 17);
          arch::syncBlock();
        },
        "exchange");
  }
  stream.synchronize();
}

sim::ExploreOptions orderedOnly(Strategy strategy, int schedules) {
  return {
      .strategy = strategy, .schedules = schedules, .findRaces = false, .weakMemory = false, .findLostSignals = false};
}

bool has(sim::ExploreResult const& result, FindingKind kind) {
  return std::ranges::any_of(result.findings, [kind](auto const& f) { return f.kind == kind; });
}

}  // namespace

TEST_CASE("a correct program has no findings, under each strategy") {
  for (auto const strategy : {Strategy::random, Strategy::pct}) {
    auto const result = sim::explore(
        {.ranks = 2},
        [](sim::RankContext& rank) {
          DeviceArray<std::uint32_t> flag(rank.device(), 2);
          Stream stream(rank.device());
          auto* p = flag.data();
          stream.launch({.blocks = 2, .threads = 32}, [p] {
            if (arch::blockIndex() == 0) {
              arch::syncBlock();
              fetchAdd<Order::release, Scope::device>(p, 1u);
            } else {
              waitUntil(p, 32);
              reduceAdd<Order::relaxed, Scope::device>(p + 1, 1u);
            }
          });
          stream.synchronize();
          if (flag[1] != 32) throw std::runtime_error("wrong");
        },
        orderedOnly(strategy, 50));
    CHECK(result.ok());
    CHECK(result.schedules == (strategy == Strategy::pct ? 51 : 50));  // with the undisturbed one
    CHECK(result.switches > 50 * 64);
    CHECK(result.memorySteps > 50 * 64);
    CHECK_FALSE(result.complete);
  }
}

TEST_CASE("what a rank throws is a finding, shrunk to the one switch that it needs") {
  for (auto const strategy : {Strategy::random, Strategy::pct}) {
    auto options = orderedOnly(strategy, 200);
    options.preemption = 0.2;
    auto const result = sim::explore({.ranks = 1}, losesIncrements, options);
    REQUIRE(result.findings.size() == 1);  // however many increments a schedule loses
    auto const& finding = result.findings[0];
    CHECK(finding.kind == FindingKind::hostFailure);
    CHECK(contains(finding.summary, "rank 0: lost "));
    CHECK(finding.seen > 1);
    CHECK(finding.accesses.at(0).host);
    INFO(finding.schedule);
    CHECK(std::ranges::count(finding.schedule, ',') == 1);
    CHECK(contains(finding.schedule, "v1,0.0.0."));

    options.replay = finding.schedule;
    auto const again = sim::explore({.ranks = 1}, losesIncrements, options);
    CHECK(again.schedules == 1);
    REQUIRE(again.findings.size() == 1);
    CHECK(again.findings[0].summary == finding.summary);
    CHECK(again.findings[0].key == finding.key);
    CHECK(again.findings[0].schedule == finding.schedule);
  }
}

TEST_CASE("the seed of a finding shows it again in one schedule") {
  for (auto const strategy : {Strategy::random, Strategy::pct}) {
    auto options = orderedOnly(strategy, 200);
    options.shrink = false;
    options.stopAtFirst = true;
    auto const result = sim::explore({.ranks = 1}, losesIncrements, options);
    REQUIRE(result.findings.size() == 1);
    options.schedules = 1;
    options.seed = result.findings[0].seed;
    auto const again = sim::explore({.ranks = 1}, losesIncrements, options);
    REQUIRE(again.findings.size() == 1);
    CHECK(again.findings[0].summary == result.findings[0].summary);
    CHECK(again.findings[0].schedule == result.findings[0].schedule);
  }
}

TEST_CASE("a schedule that was not shrunk replays exactly") {
  // Records the order of all that happens, among ranks, waits and barriers.
  std::vector<unsigned> order;
  unsigned begun = 0;
  auto const program = [&](sim::RankContext& rank) {
    if (begun++ % 2 == 0) order.clear();
    DeviceArray<std::uint32_t> flag(rank.device(), 1);
    Stream stream(rank.device());
    auto* p = flag.data();
    auto const device = static_cast<unsigned>(rank.device());
    stream.launch({.blocks = 2, .threads = 32}, [&order, p, device] {
      auto const self = device * 64 + arch::blockIndex() * 32 + arch::threadIndex();
      fetchAdd<Order::relaxed, Scope::device>(p, 1u);
      order.push_back(self);
      arch::syncWarp();
      waitUntil(p, 48);
      order.push_back(self);
      fetchAdd<Order::relaxed, Scope::device>(p, 1u);
      arch::syncBlock();
      order.push_back(self);
    });
    stream.synchronize();
    if (rank.rank() == 1)
      throw std::runtime_error(begun <= 2 ? "first run" : "later run");  // Strategy::pct has one more
  };
  for (auto const strategy : {Strategy::random, Strategy::pct}) {
    auto options = orderedOnly(strategy, 1);
    options.preemption = 0.2;
    options.shrink = false;
    begun = 0;
    auto const first = sim::explore({.ranks = 2}, program, options);
    auto const firstOrder = order;
    CHECK(firstOrder.size() == 3 * 128);
    REQUIRE_FALSE(first.findings.empty());
    options.replay = first.findings.back().schedule;
    auto const again = sim::explore({.ranks = 2}, program, options);
    REQUIRE(again.findings.size() == 1);
    CHECK(again.findings[0].schedule == options.replay);
    CHECK(order == firstOrder);
    if (strategy == Strategy::pct) continue;  // whose totals hold the undisturbed run too
    CHECK(again.switches == first.switches);
    CHECK(again.memorySteps == first.memorySteps);
  }
}

TEST_CASE("a dead-lock is a finding with one record for those who wait for the same") {
  auto const result = sim::explore({.ranks = 2}, waitsForEver, orderedOnly(Strategy::random, 20));
  REQUIRE(result.findings.size() == 1);
  auto const& finding = result.findings[0];
  CHECK(finding.kind == FindingKind::deadLock);
  CHECK(finding.seen == 20);
  CHECK(finding.schedule == "v1");
  CHECK(contains(finding.summary,
                 "rank 0: kernel \"exchange\" blocks 0-1 thread 3: waits for a signal of rank 1 on "
                 "channel 17, expected 5, seen 0"));
  REQUIRE(finding.accesses.size() == 3);
  CHECK(finding.accesses[0].rank == 0);
  CHECK(finding.accesses[0].kernel == "exchange");
  CHECK(finding.accesses[0].thread == 3);
  CHECK(finding.accesses[0].calls.size() > 3);
  CHECK(contains(finding.accesses[1].what,
                 "waits at the block's barrier (31 of 32 threads have come) (blocks 0-1 "
                 "threads 0-2,4-31)"));
  CHECK(finding.accesses[2].host);
  CHECK(contains(finding.accesses[2].what, "synchronize"));
}

TEST_CASE("lanes that look together and in vain are dead-locked") {
  auto const result = sim::explore(
      {.ranks = 1},
      [](sim::RankContext& rank) {
        DeviceArray<Words4> lines(rank.device(), 32);
        Stream stream(rank.device());
        auto* p = lines.data();
        stream.launch({.blocks = 1, .threads = 32}, [p] {
          auto const lane = arch::threadIndex();
          // Only lane 5 writes what all wait for, and not enough.
          poll(nullptr, {layout::WaitKind::packet, 0, lane, 1}, [&](std::uint64_t& seen) {
            seen = arch::loadLines(p + lane, true).w[0];
            return !arch::warpAny(seen != 1);
          });
        });
        stream.synchronize();
      },
      orderedOnly(Strategy::random, 5));
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].kind == FindingKind::deadLock);
  CHECK(contains(result.findings[0].summary, "a packet of rank 0"));
}

TEST_CASE("threads that spin by themselves and change nothing are live-locked") {
  auto options = orderedOnly(Strategy::random, 2);
  options.liveLockSteps = 20'000;
  for (auto const strategy : {Strategy::random, Strategy::pct, Strategy::exhaustive}) {
    options.strategy = strategy;
    auto const result = sim::explore(
        {.ranks = 1},
        [](sim::RankContext& rank) {
          DeviceArray<std::uint32_t> flag(rank.device(), 2);
          Stream stream(rank.device());
          auto* p = flag.data();
          stream.launch(
              {.blocks = 1, .threads = 2},
              [p] {
                while (load<Order::acquire, Scope::device>(p) == 0) exchange<Order::relaxed, Scope::device>(p + 1, 0u);
              },
              "spin");
          stream.synchronize();
        },
        options);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].kind == FindingKind::liveLock);
    CHECK(contains(result.findings[0].summary, "kernel \"spin\" block 0 threads 0-1: runs"));
    CHECK(result.memorySteps < 200'000);
    CHECK_FALSE(result.complete);
  }
}

TEST_CASE("a spin that somebody ends is no live-lock") {
  for (auto const strategy : {Strategy::random, Strategy::pct}) {
    auto const result = sim::explore(
        {.ranks = 1},
        [](sim::RankContext& rank) {
          DeviceArray<std::uint32_t> flag(rank.device(), 1);
          Stream stream(rank.device());
          auto* p = flag.data();
          stream.launch({.blocks = 4, .threads = 1}, [p] {
            if (arch::blockIndex() == 2) {
              store<Order::release, Scope::device>(p, 1u);
            } else {
              while (load<Order::acquire, Scope::device>(p) == 0) {
              }
            }
          });
          while (!machine().idle(stream.get())) {
          }
        },
        orderedOnly(strategy, 50));
    CHECK(result.ok());
  }
}

TEST_CASE("a step limit cuts a run off and says so") {
  auto options = orderedOnly(Strategy::random, 3);
  options.stepLimit = 1000;
  auto const result = sim::explore(
      {.ranks = 1},
      [](sim::RankContext& rank) {
        DeviceArray<std::uint32_t> word(rank.device(), 1);
        Stream stream(rank.device());
        auto* p = word.data();
        stream.launch({.blocks = 1, .threads = 1}, [p] {
          for (;;) fetchAdd<Order::relaxed, Scope::device>(p, 1u);
        });
        stream.synchronize();
      },
      options);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].kind == FindingKind::stepLimit);
  CHECK(result.findings[0].seen == 3);
}

TEST_CASE("a grid barrier without room for the grid is found at once, or when the room is taken") {
  // Two blocks of 1024 threads fit.
  sim::World const world{.ranks = 1, .machine = {.multiprocessors = 1}};
  auto const barrier = [](std::uint32_t* words, unsigned blocks) {
    if (arch::threadIndex() == 0) {
      fetchAdd<Order::relaxed, Scope::device>(words, 1u);
      poll(nullptr, {layout::WaitKind::gridBarrier, -1, 0, blocks}, [&](std::uint64_t& seen) {
        seen = load<Order::acquire, Scope::device>(words);
        return seen >= blocks;
      });
    }
    arch::syncBlock();
  };
  auto const tooLarge = sim::explore(
      world,
      [&](sim::RankContext& rank) {
        DeviceArray<std::uint32_t> words(rank.device(), 1);
        Stream stream(rank.device());
        auto* p = words.data();
        stream.launch(
            {.blocks = 3, .threads = 1024}, [=] { barrier(p, 3); }, "large");
        stream.synchronize();
      },
      orderedOnly(Strategy::random, 3));
  REQUIRE(tooLarge.findings.size() == 1);
  CHECK(tooLarge.findings[0].kind == FindingKind::gridNotResident);
  CHECK(contains(tooLarge.findings[0].summary, "kernel \"large\""));

  // Each of two kernels would fit by itself.
  auto const shared = sim::explore(
      world,
      [&](sim::RankContext& rank) {
        DeviceArray<std::uint32_t> words(rank.device(), 2);
        Stream first(rank.device()), second(rank.device());
        auto* p = words.data();
        first.launch({.blocks = 1, .threads = 1024}, [=] { waitUntil(p + 1, 2); });
        second.launch(
            {.blocks = 2, .threads = 1024}, [=] { barrier(p + 1, 2); }, "half");
        second.synchronize();
        first.synchronize();
      },
      orderedOnly(Strategy::random, 3));
  REQUIRE(shared.findings.size() == 1);
  CHECK(shared.findings[0].kind == FindingKind::gridNotResident);
}

TEST_CASE("a failed kernel is one finding, and the rank's error about it is none") {
  auto const result = sim::explore(
      {.ranks = 2},
      [](sim::RankContext& rank) {
        Stream stream(rank.device());
        bool const fails = rank.rank() == 1;
        stream.launch(
            {.blocks = 3, .threads = 64},
            [fails] {
              if (fails && arch::blockIndex() == 2 && arch::threadIndex() == 40)
                throw std::runtime_error("no such expert");
              arch::syncBlock();
            },
            "route");
        stream.synchronize();
      },
      orderedOnly(Strategy::random, 10));
  REQUIRE(result.findings.size() == 1);
  auto const& finding = result.findings[0];
  CHECK(finding.kind == FindingKind::kernelFailure);
  CHECK(contains(finding.summary, "kernel \"route\" failed on rank 1: block 2 thread 40: no such expert"));
  CHECK(finding.seen == 10);
  REQUIRE(finding.accesses.size() == 1);
  CHECK(finding.accesses[0].block == 2);
  CHECK(finding.accesses[0].thread == 40);
}

TEST_CASE("the first failure of a rank is the finding, and what others throw because of it stands under it") {
  auto const program = [](sim::RankContext& rank) {
    if (rank.rank() == 1) throw std::runtime_error("old packet taken for new");
    rank.bootstrap()->barrier();
  };
  auto const result = sim::explore({.ranks = 3}, program, orderedOnly(Strategy::random, 50));
  REQUIRE_MESSAGE(result.findings.size() == 1, sim::toText(result));
  auto const& finding = result.findings[0];
  CHECK(finding.summary == "rank 1: old packet taken for new");
  CHECK(finding.seen == 50);
  REQUIRE(finding.accesses.size() == 3);
  CHECK(finding.accesses[0].what == "threw: old packet taken for new");
  CHECK(contains(finding.accesses[1].what, "rank 1 is gone"));
  CHECK(contains(finding.accesses[2].what, "rank 1 is gone"));
  CHECK(contains(finding.explanation, "What has failed after it stands under it"));
}

TEST_CASE("a kernel that uses memory of a rank that has failed is no finding of its own") {
  std::uint32_t* ofRank1 = nullptr;
  auto const program = [&](sim::RankContext& rank) {
    Stream stream(rank.device());
    DeviceArray<std::uint32_t> word(rank.device(), 1);
    if (rank.rank() == 1) {
      ofRank1 = word.data();
      machine().enablePeer(0, machine().allocationOf(ofRank1));
    }
    rank.bootstrap()->barrier();
    if (rank.rank() == 1) throw std::runtime_error("old packet taken for new");
    stream.launch({.blocks = 1, .threads = 32}, [p = ofRank1] {
      for (unsigned i = 0; i < 10; ++i) store<Order::relaxed, Scope::system>(p, i);
    });
    stream.synchronize();
  };
  auto const result = sim::explore({.ranks = 2}, program, orderedOnly(Strategy::random, 50));
  REQUIRE_MESSAGE(result.findings.size() == 1, sim::toText(result));
  CHECK(result.findings[0].summary == "rank 1: old packet taken for new");
  CHECK(result.findings[0].seen == 50);
}

TEST_CASE("the machine is clean after findings, and leaks are told") {
  for (int i = 0; i < 3; ++i) {
    CHECK(has(sim::explore({.ranks = 2}, waitsForEver, orderedOnly(Strategy::random, 5)), FindingKind::deadLock));
    CHECK(
        has(sim::explore({.ranks = 1}, losesIncrements, orderedOnly(Strategy::random, 100)), FindingKind::hostFailure));
  }
  CHECK_NOTHROW(sim::install({}));  // nothing is in use

  std::vector<void*> lost;
  auto options = orderedOnly(Strategy::random, 8);
  options.shrink = false;
  auto const result = sim::explore(
      {.ranks = 1},
      [&](sim::RankContext& rank) { lost.push_back(machine().allocate(rank.device(), 64, MemoryKind::standard)); },
      options);
  for (auto* memory : lost) machine().release(memory);
  REQUIRE(result.findings.size() == 1);
  CHECK(contains(result.findings[0].summary, "1 allocations and 0 streams"));
}

TEST_CASE("exploring ends where it was told to") {
  auto options = orderedOnly(Strategy::random, 100);
  options.shrink = false;
  int calls = 0;
  auto const fails = [&calls](sim::RankContext&) {
    // A different text for each of 26 kinds of failure.
    throw std::runtime_error(std::string("failure ") + static_cast<char>('a' + calls++ % 26));
  };
  options.maxFindings = 4;
  CHECK(sim::explore({.ranks = 1}, fails, options).findings.size() == 4);
  options.maxFindings = 20;
  options.stopAtFirst = true;
  auto const first = sim::explore({.ranks = 1}, fails, options);
  CHECK(first.findings.size() == 1);
  CHECK(first.schedules == 1);

  auto limited = orderedOnly(Strategy::random, 1'000'000'000);
  limited.timeLimit = std::chrono::milliseconds(50);
  auto const inTime = sim::explore(
      {.ranks = 1}, [](sim::RankContext&) {}, limited);
  CHECK(inTime.ok());
  CHECK(inTime.seconds < 5);
  CHECK(inTime.schedules > 10);
}

TEST_CASE("a finding is seen in as many schedules as were run, at most") {
  auto const fails = [](sim::RankContext&) { throw std::runtime_error("always"); };
  for (auto const strategy : {Strategy::random, Strategy::pct}) {
    for (int const faults : {0, 1}) {
      for (bool const stopAtFirst : {false, true}) {
        auto options = orderedOnly(strategy, 10);
        options.faults = faults;
        options.stopAtFirst = stopAtFirst;
        auto const result = sim::explore({.ranks = 1}, fails, options);
        REQUIRE(result.findings.size() == 1);
        CHECK(result.findings[0].seen == result.schedules);
        CHECK(result.schedules >= (stopAtFirst ? 1u : 10u));
      }
    }
  }
}

TEST_CASE("bad options are refused") {
  auto const nothing = [](sim::RankContext&) {};
  auto const refused = [&](sim::World const& world, sim::ExploreOptions const& options) {
    return errorText([&] { sim::explore(world, nothing, options); }, ErrorCode::invalidUsage);
  };
  CHECK(contains(refused({.ranks = 0}, {}), "World::ranks is 0"));
  CHECK(contains(refused({}, {.schedules = 0}), "schedules is 0"));
  CHECK(contains(refused({}, {.preemption = 2}), "preemption is 2"));
  CHECK(contains(refused({}, {.replay = "v2,0.0.0.0@1=1"}), "begins with \"v1\""));
  CHECK(contains(refused({}, {.replay = "v1,0.0.0@1=1"}), "entry 1 of the schedule to replay is \"0.0.0@1=1\""));
  CHECK(contains(refused({}, {.replay = "v1,h0@1>h1,0.0.0.0@1>"}), "entry 2"));
  CHECK(contains(errorText([] { sim::explore({}, nullptr); }, ErrorCode::invalidUsage), "no function"));
}

TEST_CASE("explored runs have the devices and options of their world, and the machine its own again") {
  sim::install({.devices = 3});
  int devices = 0, multiprocessors = 0;
  auto const look = [&](sim::RankContext&) {
    devices = machine().deviceCount();
    multiprocessors = machine().properties(0).multiprocessors;
  };
  sim::explore({.ranks = 5, .machine = {.multiprocessors = 7}}, look, {.schedules = 1});
  CHECK(devices == 5);
  CHECK(multiprocessors == 7);
  CHECK(machine().deviceCount() == 3);
  sim::install({});
}
