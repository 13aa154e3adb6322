// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <array>
#include <set>
#include <stdexcept>

#include "mscclpp/host/wait.hpp"
#include "sim/sim_fixture.hpp"

using namespace simtest;

namespace {

// Four ranks pass a token round and count with two blocks each; returns the order in which threads took numbers.
std::vector<unsigned> interleaving(std::uint64_t seed, double preemption, sim::RunSummary* summary = nullptr) {
  std::vector<unsigned> order;
  auto const result = sim::run({.ranks = 4, .seed = seed, .preemption = preemption}, [&](sim::RankContext& rank) {
    DeviceArray<std::uint32_t> counter(rank.device(), 1);
    Stream stream(rank.device());
    auto* c = counter.data();
    stream.launch({.blocks = 2, .threads = 32}, [c, &order] {
      fetchAdd<Order::relaxed, Scope::device>(c, 1u);
      order.push_back(static_cast<unsigned>(sim::currentThread().device) * 64 + arch::blockIndex() * 32 +
                      arch::threadIndex());
      arch::syncBlock();
      fetchAdd<Order::relaxed, Scope::device>(c, 1u);
    });
    stream.synchronize();
    CHECK(counter[0] == 128);
  });
  if (summary != nullptr) *summary = result;
  return order;
}

}  // namespace

TEST_CASE("the same seed gives the same run, another seed another") {
  sim::RunSummary first, again, other;
  auto const a = interleaving(7, 0.2, &first);
  auto const b = interleaving(7, 0.2, &again);
  auto const c = interleaving(8, 0.2, &other);
  CHECK(a.size() == 256);
  CHECK(a == b);
  CHECK(first.trace == again.trace);
  CHECK(first.switches == again.switches);
  CHECK(first.memorySteps == again.memorySteps);
  CHECK(first.memorySteps >= 512);
  CHECK(a != c);
  CHECK(first.trace != other.trace);
  CHECK(std::set<unsigned>(a.begin(), a.end()).size() == 256);
}

TEST_CASE("preemption interrupts threads between a load and a store") {
  // Increments that are not atomic as a whole: only an interrupted thread loses one.
  auto lost = [](double preemption, std::uint64_t seed) {
    unsigned value = 0;
    sim::run({.ranks = 1, .seed = seed, .preemption = preemption}, [&](sim::RankContext&) {
      DeviceArray<std::uint32_t> word(0, 1);
      Stream stream;
      auto* p = word.data();
      stream.launch({.blocks = 1, .threads = 64}, [p] {
        auto const v = load<Order::relaxed, Scope::device>(p);
        store<Order::relaxed, Scope::device>(p, v + 1);
      });
      stream.synchronize();
      value = word[0];
    });
    return 64 - value;
  };
  CHECK(lost(0, 1) == 0);
  unsigned total = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) total += lost(0.3, seed);
  CHECK(total > 0);
}

TEST_CASE("a wait that nobody ends is reported with who waits for what") {
  auto const text = errorText(
      [] {
        sim::run({.ranks = 3, .seed = 42}, [](sim::RankContext& rank) {
          DeviceArray<std::uint32_t> flag(rank.device(), 1);
          Stream stream(rank.device());
          auto* p = flag.data();
          auto* watch = static_cast<layout::Watch*>(machine().allocateHost(sizeof(layout::Watch)));
          watch->rank = rank.rank();
          watch->limitNs = 1;  // does not count in a deterministic run
          int const peer = (rank.rank() + 1) % 3;
          stream.launch(
              {.blocks = 4, .threads = 64},
              [=] {
                store<Order::relaxed, Scope::device>(p, 4u);
                if (arch::threadIndex() < 32) waitUntil(p, 5, watch, peer, 17);
                arch::syncBlock();
              },
              "exchange");
          stream.synchronize();
          FAIL("the wait has ended");
        });
      },
      ErrorCode::timeout);
  INFO(text);
  CHECK(contains(text, "seed 42"));
  for (int rank = 0; rank < 3; ++rank) {
    auto const who = "rank " + std::to_string(rank);
    CHECK(contains(text, who + ": kernel \"exchange\" blocks 0-3 threads 0-31: waits for a signal of rank " +
                             std::to_string((rank + 1) % 3) + " on channel 17, expected 5, seen 4"));
    CHECK(
        contains(text, who + ": kernel \"exchange\" blocks 0-3 threads 32-63: waits at the block's barrier (32 of 64"));
    CHECK(contains(text, who + ": host code waits: synchronize"));
  }
}

TEST_CASE("a dead-lock among host code is reported") {
  auto const text = errorText(
      [] {
        sim::run({.ranks = 2}, [](sim::RankContext& rank) {
          bool const came = hostWait([&] { return rank.rank() == 0; }, std::chrono::seconds(1000));
          CHECK(came);
        });
      },
      ErrorCode::timeout);
  CHECK(contains(text, "rank 1: host code waits: host wait"));
  CHECK_FALSE(contains(text, "rank 0: host"));
}

TEST_CASE("waits end as soon as the value is there, under every seed") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    sim::run({.ranks = 2, .seed = seed, .preemption = 0.3}, [&](sim::RankContext& rank) {
      static std::array<std::uint32_t*, 2> flags;
      static int ready;
      if (rank.rank() == 0) ready = 0;
      DeviceArray<std::uint32_t> flag(rank.device(), 1);
      hostWait([&] { return rank.rank() == 0 || ready == 1; }, std::chrono::seconds(1));
      flags[static_cast<std::size_t>(rank.rank())] = flag.data();
      machine().enablePeer(1 - rank.device(), machine().allocationOf(flag.data()));
      ++ready;
      hostWait([&] { return ready >= 2; }, std::chrono::seconds(1));
      Stream stream(rank.device());
      auto* mine = flag.data();
      auto* theirs = flags[static_cast<std::size_t>(1 - rank.rank())];
      stream.launch({.blocks = 1, .threads = 32}, [=] {
        for (std::uint32_t round = 1; round <= 5; ++round) {
          if (arch::threadIndex() == 0) reduceAdd<Order::release, Scope::system>(theirs, 1u);
          waitUntil(mine, round);
          arch::syncWarp();
        }
      });
      stream.synchronize();
      CHECK(flag[0] == 5);
      ++ready;
      hostWait([&] { return ready == 4; }, std::chrono::seconds(1));
    });
  }
}

TEST_CASE("a kernel that spins by itself does not keep the others from running") {
  auto const summary = sim::run({.ranks = 1, .preemption = 0}, [](sim::RankContext&) {
    DeviceArray<std::uint32_t> flag(0, 1);
    Stream stream;
    auto* p = flag.data();
    stream.launch({.blocks = 2, .threads = 1}, [p] {
      if (arch::blockIndex() == 0) {
        while (load<Order::relaxed, Scope::device>(p) == 0) {
        }
      } else {
        store<Order::relaxed, Scope::device>(p, 1u);
      }
    });
    stream.synchronize();
  });
  CHECK(summary.switches > 2);
}

TEST_CASE("the wall limit ends a spin that no one satisfies") {
  auto const text = errorText(
      [] {
        sim::run({.ranks = 1, .wallLimit = std::chrono::seconds(1)}, [](sim::RankContext&) {
          DeviceArray<std::uint32_t> flag(0, 1);
          Stream stream;
          auto* p = flag.data();
          stream.launch({.blocks = 1, .threads = 1}, [p] {
            while (load<Order::relaxed, Scope::device>(p) == 0) {
            }
          });
          stream.synchronize();
        });
      },
      ErrorCode::timeout);
  CHECK(contains(text, "has not ended within 1 s"));
  CHECK(contains(text, "thread 0: runs"));
}

TEST_CASE("an exception of one rank ends all others, and every frame is unwound") {
  struct Counted {
    int& alive;
    explicit Counted(int& a) : alive(a) { ++alive; }
    ~Counted() { --alive; }
  };
  int host = 0, device = 0;
  CHECK_THROWS_WITH_AS(sim::run({.ranks = 4, .seed = 3},
                                [&](sim::RankContext& rank) {
                                  Counted const here(host);
                                  DeviceArray<std::uint32_t> flag(rank.device(), 1);
                                  Stream stream(rank.device());
                                  auto* p = flag.data();
                                  stream.launch({.blocks = 2, .threads = 64}, [p, &device] {
                                    Counted const there(device);
                                    waitUntil(p, 1);
                                  });
                                  if (rank.rank() == 2) throw std::out_of_range("rank 2 has had enough");
                                  stream.synchronize();
                                }),
                       "rank 2 has had enough", std::out_of_range);
  CHECK(host == 0);
  CHECK(device == 0);
  CHECK_NOTHROW(interleaving(1, 0));  // the machine is usable again
}

TEST_CASE("a kernel's exception reaches synchronize of its rank") {
  sim::run({.ranks = 2}, [](sim::RankContext& rank) {
    Stream stream(rank.device());
    bool const fails = rank.rank() == 1;
    stream.launch(
        {.blocks = 3, .threads = 64},
        [fails] {
          if (fails && arch::blockIndex() == 2 && arch::threadIndex() == 40) throw std::runtime_error("no such expert");
          arch::syncBlock();
        },
        "route");
    auto const text = errorText([&] { stream.synchronize(); }, ErrorCode::deviceError);
    if (fails) {
      CHECK(text == "kernel \"route\" failed on simulated device 1: block 2 thread 40: no such expert");
    } else {
      CHECK(text.empty());
    }
    stream.launch({}, [] { arch::syncBlock(); });  // the stream stays usable
    CHECK_NOTHROW(stream.synchronize());
  });
}

TEST_CASE("a failed kernel that nobody asks about fails the run") {
  auto const text = errorText(
      [] {
        sim::run({.ranks = 1}, [](sim::RankContext&) {
          auto* stream = machine().createStream(0);
          sim::enqueueKernel(stream, {}, "lost", [] { arch::trap("bad luck"); });
        });
      },
      ErrorCode::deviceError);
  CHECK(contains(text, "kernel \"lost\""));
  CHECK(contains(text, "bad luck"));
}

TEST_CASE("ranks may catch and wait at the same time without mixing up their exceptions") {
  sim::run({.ranks = 8, .seed = 5}, [](sim::RankContext& rank) {
    Stream stream(rank.device());
    try {
      throw rank.rank();
    } catch (int mine) {
      stream.launch({}, [] { arch::syncBlock(); });
      stream.synchronize();
      try {
        throw;
      } catch (int again) {
        CHECK(again == rank.rank());
      }
      CHECK(mine == rank.rank());
    }
  });
}

TEST_CASE("the clock of a deterministic run follows from the seed") {
  auto times = [] {
    std::vector<std::uint64_t> seen;
    runKernel({.ranks = 1, .seed = 9}, {.blocks = 1, .threads = 4}, [&] {
      seen.push_back(arch::nanoseconds());
      arch::syncBlock();
      seen.push_back(arch::nanoseconds());
    });
    return seen;
  };
  auto const first = times();
  CHECK(first == times());
  CHECK(first.back() > first.front());
}

TEST_CASE("bad options and calls from outside are refused") {
  CHECK(contains(errorText([] { sim::run({.ranks = 0}, [](sim::RankContext&) {}); }, ErrorCode::invalidUsage),
                 "0 ranks"));
  CHECK(contains(errorText([] { sim::run({.preemption = 1.5}, [](sim::RankContext&) {}); }, ErrorCode::invalidUsage),
                 "preemption is 1.5"));
  CHECK(contains(errorText([] { sim::run({}, [](sim::RankContext&) { sim::run({}, [](sim::RankContext&) {}); }); },
                           ErrorCode::invalidUsage),
                 "another run"));
  CHECK(contains(errorText([] { arch::threadIndex(); }, ErrorCode::invalidUsage), "outside of a kernel"));
  CHECK_FALSE(sim::insideKernel());
}

TEST_CASE("72 ranks") {
  constexpr unsigned threads = fewFibers ? 16 : 128;
  unsigned ended = 0;
  sim::run({.ranks = 72, .preemption = 0}, [&](sim::RankContext& rank) {
    Stream stream(rank.device());
    stream.launch({.blocks = 1, .threads = threads}, [&ended] {
      arch::syncBlock();
      ++ended;
      arch::syncBlock();
    });
    stream.synchronize();
  });
  CHECK(ended == 72 * threads);
}
