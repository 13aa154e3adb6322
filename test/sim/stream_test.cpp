// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "sim/sim_fixture.hpp"

using namespace simtest;

TEST_CASE("kernels and copies of a stream run in order") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sim::run({.ranks = 1, .seed = seed, .preemption = 0.3}, [](sim::RankContext&) {
      DeviceArray<std::uint32_t> a(0, 64), b(0, 64);
      Stream stream;
      std::vector<std::uint32_t> host(64);
      auto* pa = a.data();
      auto* pb = b.data();
      unsigned wrong = 0;
      stream.launch({.blocks = 2, .threads = 32}, [pa] {
        store<Order::relaxed, Scope::device>(pa + arch::blockIndex() * 32 + arch::threadIndex(),
                                             arch::threadIndex() + 1);
      });
      machine().copyAsync(pb, pa, 256, stream.get());
      stream.launch({.blocks = 2, .threads = 32}, [pa, pb, &wrong] {
        auto const i = arch::blockIndex() * 32 + arch::threadIndex();
        if (load<Order::relaxed, Scope::device>(pb + i) != arch::threadIndex() + 1) ++wrong;
        store<Order::relaxed, Scope::device>(pa + i, 9u);
      });
      machine().copyAsync(host.data(), pa, 256, stream.get());
      stream.synchronize();
      CHECK(wrong == 0);
      CHECK(b[63] == 32);
      CHECK(std::ranges::count(host, 9u) == 64);
      CHECK(machine().idle(stream.get()));
    });
  }
}

TEST_CASE("streams of one device do not wait for each other") {
  sim::run({.ranks = 1}, [](sim::RankContext&) {
    DeviceArray<std::uint32_t> flag(0, 1);
    Stream first, second;
    auto* p = flag.data();
    first.launch({.threads = 1}, [p] { waitUntil(p, 1); });
    second.launch({.threads = 1}, [p] { store<Order::release, Scope::device>(p, 1u); });
    while (!machine().idle(first.get())) {
    }
    second.synchronize();
    CHECK(flag[0] == 1);
  });
}

TEST_CASE("a stream runs after what another holds now, and not after what comes later") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sim::run({.ranks = 1, .seed = seed, .preemption = 0.3}, [](sim::RankContext&) {
      DeviceArray<std::uint32_t> words(0, 3);
      Stream main, side;
      auto* p = words.data();
      main.launch({.threads = 1}, [p] {
        for (int i = 0; i < 5; ++i) (void)load<Order::relaxed, Scope::device>(p + 2);
        store<Order::relaxed, Scope::device>(p, 7u);
      });
      machine().orderAfter(0, side.get(), main.get());
      // Held until the side stream has run: it does not wait for this one.
      main.launch({.threads = 1}, [p] { waitUntil(p + 2, 1); });
      machine().copyAsync(p + 1, p, 4, side.get());
      side.launch({.threads = 1}, [p] { store<Order::release, Scope::device>(p + 2, 1u); });
      machine().orderAfter(0, main.get(), side.get());
      main.synchronize();
      CHECK(machine().idle(side.get()));
      CHECK(words[1] == 7);
    });
  }
}

TEST_CASE("who waits for a failed stream goes on") {
  DeviceArray<std::uint32_t> words(0, 1);
  Stream main, side;
  auto* p = words.data();
  main.launch({.threads = 1}, [] { arch::trap("on purpose"); });
  machine().orderAfter(0, side.get(), main.get());
  side.launch({.threads = 1}, [p] { store<Order::relaxed, Scope::device>(p, 1u); });
  side.synchronize();
  CHECK(words[0] == 1);
  CHECK(contains(errorText([&] { main.synchronize(); }, ErrorCode::deviceError), "on purpose"));
}

TEST_CASE("a kernel launched with overlapPrevious begins early and waits where it says") {
  bool everEarly = false;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    bool early = false;
    unsigned wrong = 0;
    sim::run({.ranks = 1, .seed = seed, .preemption = 0.3}, [&](sim::RankContext&) {
      DeviceArray<std::uint32_t> words(0, 2);
      Stream stream;
      auto* p = words.data();
      stream.launch({.blocks = 4, .threads = 32}, [p] {
        arch::allowNextKernel();
        for (int i = 0; i < 20; ++i) reduceAdd<Order::relaxed, Scope::device>(p, 1u);
      });
      for (int next = 1; next <= 3; ++next) {
        stream.launch({.blocks = 4, .threads = 32, .overlapPrevious = true}, [=, &early, &wrong] {
          auto const all = static_cast<std::uint32_t>(next) * 4 * 32 * 20;
          if (load<Order::relaxed, Scope::device>(p) < all) early = true;
          arch::allowNextKernel();
          arch::waitForPreviousKernel();
          if (load<Order::relaxed, Scope::device>(p) < all) ++wrong;
          for (int i = 0; i < 20; ++i) reduceAdd<Order::relaxed, Scope::device>(p, 1u);
        });
      }
      stream.synchronize();
      CHECK(words[0] == 4 * 4 * 32 * 20);
    });
    CHECK(wrong == 0);
    everEarly |= early;
  }
  CHECK(everEarly);
}

TEST_CASE("without overlapPrevious, or without leave, a kernel begins after the one ahead") {
  auto earlyStarts = [](bool overlap, bool allow) {
    unsigned early = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      sim::run({.ranks = 1, .seed = seed, .preemption = 0.3}, [&](sim::RankContext&) {
        DeviceArray<std::uint32_t> words(0, 1);
        Stream stream;
        auto* p = words.data();
        stream.launch({.blocks = 2, .threads = 32}, [=] {
          if (allow && arch::blockIndex() == 0) arch::allowNextKernel();  // not every block
          for (int i = 0; i < 10; ++i) reduceAdd<Order::relaxed, Scope::device>(p, 1u);
          if (arch::blockIndex() == 1) reduceAdd<Order::relaxed, Scope::device>(p, 1u);
        });
        stream.launch({.threads = 1, .overlapPrevious = overlap}, [=, &early] {
          if (load<Order::relaxed, Scope::device>(p) != 2 * 320 + 32 && !allow) ++early;
          if (allow && load<Order::relaxed, Scope::device>(p) < 320) ++early;
          arch::waitForPreviousKernel();
        });
        stream.synchronize();
      });
    }
    return early;
  };
  CHECK(earlyStarts(false, false) == 0);
  CHECK(earlyStarts(true, false) == 0);
  CHECK(earlyStarts(true, true) == 0);
}

TEST_CASE("blocks beyond the device's room begin as others end") {
  sim::install({.devices = 1, .multiprocessors = 1});
  unsigned live = 0, most = 0, ran = 0;
  runKernel({.ranks = 1, .preemption = 0.1}, {.blocks = 40, .threads = 256}, [&] {
    most = std::max(most, ++live);
    arch::syncBlock();
    ++ran;
    arch::syncBlock();
    --live;
  });
  CHECK(ran == 40 * 256);
  CHECK(most <= 2048);
  CHECK(most >= 512);
  auto const text = errorText(
      [] {
        sim::run({.ranks = 1}, [](sim::RankContext&) {
          DeviceArray<std::uint32_t> flag(0, 1);
          Stream stream;
          auto* p = flag.data();
          stream.launch(
              {.blocks = 10, .threads = 1024}, [p] { waitUntil(p, 1); }, "large");
          stream.synchronize();
        });
      },
      ErrorCode::timeout);
  CHECK(contains(text, "kernel \"large\" blocks 2-9 have not begun"));
  sim::install({});
}

TEST_CASE("what follows a failed kernel is not run") {
  sim::run({.ranks = 1}, [](sim::RankContext&) {
    DeviceArray<std::uint32_t> word(0, 1);
    Stream stream;
    auto* p = word.data();
    stream.launch({.blocks = 2, .threads = 64}, [p] {
      arch::allowNextKernel();
      if (arch::threadIndex() == 3) arch::trap("bad row");
      waitUntil(p, 1);
    });
    stream.launch({.overlapPrevious = true}, [p] {
      arch::waitForPreviousKernel();
      store<Order::relaxed, Scope::device>(p, 7u);
    });
    stream.launch({}, [p] { store<Order::relaxed, Scope::device>(p, 8u); });
    CHECK(contains(errorText([&] { stream.synchronize(); }, ErrorCode::deviceError), "bad row"));
    CHECK(word[0] == 0);
    CHECK_NOTHROW(stream.synchronize());  // said once
  });
}

TEST_CASE("a stream may be destroyed with work in it") {
  sim::run({.ranks = 2}, [](sim::RankContext& rank) {
    DeviceArray<std::uint32_t> word(rank.device(), 1);
    {
      Stream stream(rank.device());
      stream.launch({.blocks = 2, .threads = 32},
                    [p = word.data()] { reduceAdd<Order::relaxed, Scope::device>(p, 1u); });
    }
    CHECK(word[0] == 64);
  });
}
