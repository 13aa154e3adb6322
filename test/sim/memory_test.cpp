// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <set>

#include "sim/sim_fixture.hpp"

using namespace simtest;

namespace {

enum class Colour : std::uint32_t { red = 1, blue = 2 };

// One block rewrites a line of 128 bytes with ever new values, another reads it. Counts the looks at which the eight
// parts differ, and those at which the halves of one part differ.
struct Torn {
  unsigned lines = 0;
  unsigned halves = 0;
};

Torn tear(std::uint64_t seed, bool asLines) {
  Torn torn;
  sim::run({.ranks = 1, .seed = seed, .preemption = 0.4}, [&](sim::RankContext&) {
    DeviceArray<Words4> line(0, 32);
    Stream stream;
    auto* p = line.data();
    stream.launch({.blocks = 2, .threads = 32}, [=, &torn] {
      unsigned const lane = arch::threadIndex();
      for (std::uint32_t round = 1; round <= 20; ++round) {
        if (arch::blockIndex() == 0) {
          Words4 const value{{round, round, round, round}};
          asLines ? storeLines(p + lane, value, true) : storeWords4(p + lane, value);
        } else {
          Words4 const seen = asLines ? loadLines(p + lane, true) : loadWords4(p + lane);
          if (seen.w[0] != seen.w[1] || seen.w[2] != seen.w[3]) torn.halves += 1000000;  // never: 8 bytes are whole
          if (seen.w[0] != seen.w[2]) ++torn.halves;
          if (arch::shuffle(seen.w[0], lane & ~7u) != seen.w[0]) ++torn.lines;
        }
      }
    });
    stream.synchronize();
  });
  return torn;
}

}  // namespace

TEST_CASE("ordered operations do what they say") {
  sim::run({.ranks = 1, .preemption = 0.2}, [](sim::RankContext&) {
    DeviceArray<std::uint64_t> words(0, 16);
    Stream stream;
    auto* p = words.data();
    unsigned wrong = 0;
    stream.launch({.blocks = 2, .threads = 64}, [=, &wrong] {
      fetchAdd<Order::acquireRelease, Scope::device>(p, 3ul);
      reduceAdd<Order::release, Scope::system>(p + 1, 1ul);
      auto* w = reinterpret_cast<std::uint32_t*>(p + 2);
      for (;;) {
        auto expected = load<Order::acquire, Scope::device>(w);
        if (compareExchange<Order::acquireRelease, Scope::device>(w, expected, expected + 2)) break;
      }
      fence<Order::sequential, Scope::system>();
      fence<Order::acquireRelease, Scope::device>();
      if (arch::blockIndex() == 0 && arch::threadIndex() == 0) {
        auto* f = reinterpret_cast<float*>(p + 3);
        store<Order::release, Scope::system>(f, 1.5f);
        if (exchange<Order::acquireRelease, Scope::system>(f, 2.5f) != 1.5f) ++wrong;
        if (load<Order::relaxed, Scope::block>(f) != 2.5f) ++wrong;
        auto* c = reinterpret_cast<Colour*>(p + 4);
        store<Order::relaxed, Scope::device>(c, Colour::blue);
        if (load<Order::relaxed, Scope::device>(c) != Colour::blue) ++wrong;
        auto** q = reinterpret_cast<std::uint64_t**>(p + 5);
        store<Order::relaxed, Scope::device>(q, p);
        if (load<Order::relaxed, Scope::device>(q) != p) ++wrong;
        std::uint64_t expected = 99;
        if (compareExchange<Order::relaxed, Scope::device>(p + 6, expected, 1) || expected != 0) ++wrong;
        storeWords2(reinterpret_cast<Words2*>(p + 7), {{8, 9}});
        if (loadWords2(reinterpret_cast<Words2*>(p + 7)).w[1] != 9) ++wrong;
      }
    });
    stream.synchronize();
    CHECK(wrong == 0);
    CHECK(words[0] == 128 * 3);
    CHECK(words[1] == 128);
    CHECK(words[2] == 256);
  });
}

TEST_CASE("16-byte accesses tear at 8 bytes for some seed, lines never") {
  Torn words, lines;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    auto const w = tear(seed, false);
    words.halves += w.halves;
    words.lines += w.lines;
    auto const l = tear(seed, true);
    lines.halves += l.halves;
    lines.lines += l.lines;
  }
  CHECK(words.halves > 0);
  CHECK(words.halves < 1000000);
  CHECK(words.lines > 0);
  CHECK(lines.halves == 0);
  CHECK(lines.lines == 0);
}

TEST_CASE("lines tear on a machine whose links do not deliver them whole") {
  sim::install({.devices = 2, .linesArriveWhole = false});
  CHECK_FALSE(machine().linesArriveWhole(0, 1));
  unsigned torn = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) torn += tear(seed, true).lines;
  CHECK(torn > 0);
  sim::install({});
  CHECK(machine().linesArriveWhole(0, 1));
}

TEST_CASE("inactive lanes of a line access touch nothing") {
  sim::run({}, [](sim::RankContext&) {
    DeviceArray<Words4> line(0, 32);
    Stream stream;
    auto* p = line.data();
    unsigned zero = 0;
    stream.launch({}, [=, &zero] {
      unsigned const lane = arch::threadIndex();
      bool const active = lane < 16;
      storeLines(active ? p + lane : nullptr, {{lane, lane, lane, lane + 1}}, active);
      Words4 const v = loadLines(active ? p + lane : nullptr, active);
      if (!active && v.w[3] == 0) ++zero;
    });
    stream.synchronize();
    CHECK(zero == 16);
    CHECK(line[15].w[3] == 16);
    CHECK(line[16].w[3] == 0);
  });
}

TEST_CASE("accesses outside of the device's memory fail the kernel") {
  auto const error = [](std::function<void(std::uint32_t*)> const& act, std::size_t words = 4) {
    return errorText(
        [&] {
          sim::run({.ranks = 2}, [&](sim::RankContext& rank) {
            if (rank.rank() != 0) return;
            DeviceArray<std::uint32_t> own(0, words);
            Stream stream;
            stream.launch({.threads = 1}, [&act, p = own.data()] { act(p); });
            stream.synchronize();
          });
        },
        ErrorCode::deviceError);
  };
  CHECK(error([](std::uint32_t* p) { store<Order::relaxed, Scope::device>(p + 3, 1u); }).empty());
  CHECK(contains(error([](std::uint32_t* p) { store<Order::relaxed, Scope::device>(p + 4, 1u); }), "are no memory"));
  CHECK(contains(
      error([](std::uint32_t* p) { load<Order::relaxed, Scope::device>(reinterpret_cast<std::uint64_t*>(p + 4)); }, 5),
      "run past the end of an allocation of 20 bytes"));
  CHECK(contains(
      error([](std::uint32_t* p) { load<Order::relaxed, Scope::device>(reinterpret_cast<std::uint64_t*>(p + 1)); }),
      "not aligned to 8"));
  CHECK(contains(error([](std::uint32_t* p) { loadWords4(reinterpret_cast<Words4*>(p + 2)); }), "not aligned"));
  CHECK(contains(error([](std::uint32_t*) {
                   std::uint32_t local = 0;
                   load<Order::relaxed, Scope::device>(&local);
                 }),
                 "a host variable"));
}

TEST_CASE("a device uses another's memory only after enablePeer") {
  auto write = [](bool enable) {
    return errorText(
        [&] {
          sim::run({.ranks = 2}, [&](sim::RankContext& rank) {
            if (rank.rank() != 0) return;
            DeviceArray<std::uint32_t> theirs(1, 1);
            auto* host = static_cast<std::uint32_t*>(machine().allocateHost(4));
            if (enable) machine().enablePeer(0, machine().allocationOf(theirs.data()));
            Stream stream(0);
            stream.launch({.threads = 1}, [p = theirs.data(), host] {
              store<Order::relaxed, Scope::system>(host, 6u);
              store<Order::relaxed, Scope::system>(p, 5u);
            });
            stream.synchronize();
            CHECK(theirs[0] == 5);
            CHECK(*host == 6);
            machine().releaseHost(host);
          });
        },
        ErrorCode::deviceError);
  };
  CHECK(write(true).empty());
  CHECK(contains(write(false), "allocation on simulated device 1 are not open to simulated device 0"));
}
