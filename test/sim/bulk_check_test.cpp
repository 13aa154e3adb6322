// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the checker says of bulk copies: each fault beside the program without it.
//
// Plain accesses are reported to the checker by hand, with a number in place of a code address, so that a finding tells
// which they were.
#include "mscclpp/device/bulk_copy.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "sim/checker/checker.hpp"
#include "sim/checker/hook_calls.hpp"
#include "sim/machine/machine.hpp"
#include "sim_fixture.hpp"

using namespace simtest;
using sim::Finding;
using sim::FindingKind;

namespace {

enum Place : std::uintptr_t { fill = 1, refill, use, clear };

struct alignas(16) Chunk {
  std::uint32_t words[64];
};

constexpr std::uint32_t bytes = sizeof(Chunk);

Chunk& chunk() { return arch::blockShared<Chunk, Chunk>(); }
BulkBarrier& barrier() { return arch::blockShared<BulkBarrier, BulkBarrier>(); }

void write(std::uint32_t* word, Place place, unsigned count = 1) {
  sim::hookAccess(word, count * sizeof *word, true, reinterpret_cast<void*>(place));
  for (unsigned i = 0; i < count; ++i) word[i] = 7;
}

void read(std::uint32_t const* word, Place place) {
  sim::hookAccess(word, sizeof *word, false, reinterpret_cast<void*>(place));
}

// What two ranks, each with 64 words that the other may use, do in a kernel.
struct Ranks {
  unsigned rank;
  std::uint32_t* mine;
  std::uint32_t* theirs;
  std::uint32_t* myFlag;
  std::uint32_t* theirFlag;
};

struct Setup {
  int ranks = 1;
  unsigned threads = 1;
  int kernels = 1;  // one after the other
};

// All different findings of some schedules.
std::vector<Finding> findings(Setup const& setup, std::function<void(Ranks const&)> const& kernel) {
  std::vector<Finding> all;
  sim::ensureInstalled();
  auto& simulated = sim::Machine::instance();
  sim::Checker checker(simulated);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    checker.begin({});
    simulated.observe(&checker);
    {
      DeviceArray<std::uint32_t> words0(0, 64), words1(1, 64), flags0(0, 1), flags1(1, 1);
      for (auto const* of : {&words0, &words1, &flags0, &flags1}) {
        for (int device : {0, 1}) machine().enablePeer(device, machine().allocationOf(of->data()));
      }
      std::uint32_t* const words[] = {words0.data(), words1.data()};
      std::uint32_t* const flags[] = {flags0.data(), flags1.data()};
      sim::run({.ranks = setup.ranks, .seed = seed, .preemption = 0.2}, [&](sim::RankContext& context) {
        auto const rank = static_cast<unsigned>(context.rank());
        Ranks const ranks{rank, words[rank], words[1 - rank], flags[rank], flags[1 - rank]};
        Stream stream(context.rank());
        for (int i = 0; i < setup.kernels; ++i) {
          stream.launch({.threads = setup.threads}, [&kernel, ranks] { kernel(ranks); });
        }
        stream.synchronize();
      });
    }
    simulated.observe(nullptr);
    for (auto& finding : checker.end()) {
      if (std::ranges::none_of(all, [&](Finding const& f) { return f.key == finding.key; })) {
        all.push_back(std::move(finding));
      }
    }
  }
  return all;
}

std::string summaries(std::vector<Finding> const& all) {
  std::string text;
  for (auto const& f : all) text += f.summary + "\n  " + f.explanation + "\n";
  return text;
}

// Where the finding's accesses stand: places, and 0 for anything else.
std::vector<std::uintptr_t> placesOf(Finding const& finding) {
  std::vector<std::uintptr_t> places;
  for (auto const& access : finding.accesses) {
    places.push_back(access.calls.empty() || access.calls[0] > clear ? 0 : access.calls[0]);
  }
  std::ranges::sort(places);
  return places;
}

// `program(faulty, ranks)` must have that fault when it is faulty, perhaps between other accesses too, and no other;
// and none otherwise.
template <class Program>
void check(FindingKind kind, std::vector<std::uintptr_t> const& places, Program program, Setup const& setup = {}) {
  auto const faulty = findings(setup, [&](Ranks const& ranks) { program(true, ranks); });
  CAPTURE(summaries(faulty));
  CHECK(std::ranges::any_of(faulty, [&](Finding const& f) { return placesOf(f) == places; }));
  for (auto const& finding : faulty) {
    CHECK(finding.kind == kind);
    for (auto const& access : finding.accesses) CHECK(access.kernel == "kernel");
  }
  auto const correct = findings(setup, [&](Ranks const& ranks) { program(false, ranks); });
  CHECK_MESSAGE(correct.empty(), summaries(correct));
}

void storeAndWait(std::uint32_t* dst) {
  bulkStore(dst, &chunk(), bytes);
  bulkCommit();
  bulkWait();
}

}  // namespace

TEST_CASE("a copy of what its thread has just written needs a fence") {
  check(FindingKind::missingProxyFence, {0, fill}, [](bool faulty, Ranks const& r) {
    write(chunk().words, fill, 64);
    if (!faulty) bulkFence();
    storeAndWait(r.mine);
  });
}

TEST_CASE("so does a copy over what was written before") {
  check(FindingKind::missingProxyFence, {0, clear}, [](bool faulty, Ranks const& r) {
    write(r.mine + 8, clear);
    if (!faulty) bulkFence();
    storeAndWait(r.mine);
  });
}

TEST_CASE("a fence covers what its thread knows of") {
  // Before the barrier each thread's covers its own writes, after it one thread's covers them all.
  check(FindingKind::missingProxyFence, {0, fill},
        [](bool faulty, Ranks const& r) {
          write(chunk().words + arch::threadIndex(), fill);
          if (!faulty || arch::threadIndex() == 0) bulkFence();
          arch::syncBlock();
          if (arch::threadIndex() == 0) storeAndWait(r.mine);
        },
        {.threads = 4});
  check(FindingKind::missingProxyFence, {0, fill},
        [](bool faulty, Ranks const& r) {
          write(chunk().words + arch::threadIndex(), fill);
          arch::syncBlock();
          if (arch::threadIndex() == (faulty ? 1 : 0)) bulkFence();  // thread 0 knows nothing of another's
          if (arch::threadIndex() == 0) storeAndWait(r.mine);
        },
        {.threads = 4});
}

TEST_CASE("a load of what the kernel has written needs a fence, of what an earlier kernel has written none") {
  auto const load = [](std::uint32_t* from) {
    barrier().init(1);
    barrier().arriveExpect(bytes);
    bulkLoad(&chunk(), from, bytes, barrier());
    barrier().wait(nullptr, 0);
    read(chunk().words, use);
  };
  check(FindingKind::missingProxyFence, {0, fill}, [&](bool faulty, Ranks const& r) {
    write(r.mine, fill, 64);
    if (!faulty) bulkFence();
    load(r.mine);
  });
  auto const apart = findings({.kernels = 2}, [&](Ranks const& r) {
    if (r.mine[0] != 7) return write(r.mine, fill, 64);
    load(r.mine);
  });
  CHECK_MESSAGE(apart.empty(), summaries(apart));
}

TEST_CASE("a source is written again only after bulkWaitRead") {
  check(FindingKind::race, {0, refill}, [](bool faulty, Ranks const& r) {
    write(chunk().words, fill, 64);
    bulkFence();
    bulkStore(r.mine, &chunk(), bytes);
    bulkCommit();
    if (!faulty) bulkWaitRead();
    write(chunk().words, refill);
    bulkWait();
  });
}

TEST_CASE("what a store has written is used only after bulkWait") {
  check(FindingKind::race, {0, use}, [](bool faulty, Ranks const& r) {
    bulkStore(r.mine, &chunk(), bytes);
    bulkCommit();
    faulty ? bulkWaitRead() : bulkWait();
    read(r.mine + 3, use);
    bulkWait();
  });
}

TEST_CASE("bulkWait<1> leaves the newest group on its way") {
  check(FindingKind::race, {0, use}, [](bool faulty, Ranks const& r) {
    bulkStore(r.mine, &chunk(), bytes / 2);
    bulkCommit();
    bulkStore(r.mine + 32, &chunk().words[32], bytes / 2);
    bulkCommit();
    bulkWait<1>();
    read(r.mine + (faulty ? 32 : 0), use);
    bulkWait();
  });
}

TEST_CASE("what a load has brought is used only after a wait at its barrier") {
  check(FindingKind::race, {0, use},
        [](bool faulty, Ranks const& r) {
          if (arch::threadIndex() == 0) barrier().init(1);
          arch::syncBlock();
          if (arch::threadIndex() == 0) {
            barrier().arriveExpect(bytes);
            bulkLoad(&chunk(), r.mine, bytes, barrier());
          }
          if (!faulty || arch::threadIndex() == 0) barrier().wait(nullptr, 0);
          if (arch::threadIndex() == 1) read(chunk().words, use);
        },
        {.threads = 2});
}

TEST_CASE("copies that depend on each other have to be waited for too") {
  check(FindingKind::race, {0, 0}, [](bool faulty, Ranks const& r) {
    barrier().init(1);
    barrier().arriveExpect(bytes);
    bulkLoad(&chunk(), r.mine, bytes, barrier());
    if (!faulty) barrier().wait(nullptr, 0);
    bulkStore(r.mine, &chunk(), bytes);
    bulkCommit();
    if (faulty) barrier().wait(nullptr, 0);
    bulkWait();
  });
  check(FindingKind::race, {0, 0}, [](bool faulty, Ranks const& r) {
    bulkStore(r.mine, &chunk(), bytes / 2);
    bulkCommit();
    if (!faulty) bulkWait();
    bulkStore(r.mine + 16, &chunk().words[32], bytes / 2);
    bulkCommit();
    bulkWait();
  });
}

TEST_CASE("threads meet between the making of a barrier and its use") {
  check(FindingKind::race, {0, 0},
        [](bool faulty, Ranks const&) {
          if (arch::threadIndex() == 0) barrier().init(2);
          if (faulty) {
            arch::shuffle(0u, 0);  // the barrier is there, but a shuffle makes nothing known
          } else {
            arch::syncBlock();
          }
          barrier().arrive();
          barrier().wait(nullptr, 0);
        },
        {.threads = 2});
}

TEST_CASE("an arrival releases and a wait acquires") {
  check(FindingKind::race, {fill, use},
        [](bool faulty, Ranks const&) {
          if (arch::threadIndex() == 0) barrier().init(2);
          arch::syncBlock();
          if (!faulty) write(chunk().words + arch::threadIndex(), fill);
          barrier().arrive();
          if (faulty) write(chunk().words + arch::threadIndex(), fill);
          barrier().wait(nullptr, 0);
          read(chunk().words + (1 - arch::threadIndex()), use);
        },
        {.threads = 2});
}

TEST_CASE("a thread that ends before its stores have left the shared memory") {
  for (bool const committed : {false, true}) {
    check(FindingKind::bytesInFlight, {0}, [=](bool faulty, Ranks const& r) {
      bulkStore(r.mine, &chunk(), bytes);
      if (committed || !faulty) bulkCommit();
      if (!faulty) bulkWaitRead();
    });
  }
  auto const found = findings({}, [](Ranks const& r) { bulkStore(r.mine, &chunk(), bytes); });
  REQUIRE(found.size() == 1);
  CHECK(found[0].summary == "thread 0 of rank 0 block 0 ended with a bulk store of 256 bytes on its way");
  REQUIRE(found[0].accesses.size() == 1);
  auto const& access = found[0].accesses[0];
  CHECK(access.what == "bulk copy's write of 256 bytes");
  CHECK(access.memory == "offset 0 of 256 bytes on simulated device 0");
  CHECK(access.kernel == "kernel");
  REQUIRE(!found[0].timeline.empty());
  CHECK(contains(found[0].timeline.back(),
                 "rank 0 block 0 thread 0: bulkStore of 256 bytes to offset 0 of 256 bytes on simulated device 0"));
}

TEST_CASE("a block that ends before its loads have come") {
  check(FindingKind::bytesInFlight, {0}, [](bool faulty, Ranks const& r) {
    barrier().init(1);
    barrier().arriveExpect(bytes);
    bulkLoad(&chunk(), r.mine, bytes, barrier());
    if (!faulty) barrier().wait(nullptr, 0);
  });
}

TEST_CASE("a signal after bulkWait hands a peer what was stored into its memory") {
  check(FindingKind::race, {0, use},
        [](bool faulty, Ranks const& r) {
          if (r.rank == 0) {
            bulkStore(r.theirs, &chunk(), bytes);
            bulkCommit();
            faulty ? bulkWaitRead() : bulkWait();
            store<Order::release, Scope::system>(r.theirFlag, 1u);
          } else {
            waitUntil(r.myFlag, 1);
            read(r.mine + 40, use);
          }
        },
        {.ranks = 2});
}

TEST_CASE("what a peer has written by plain stores needs a fence before it is loaded") {
  check(FindingKind::missingProxyFence, {0, fill},
        [](bool faulty, Ranks const& r) {
          if (r.rank == 0) {
            write(r.theirs, fill, 64);
            store<Order::release, Scope::system>(r.theirFlag, 1u);
          } else {
            barrier().init(1);
            waitUntil(r.myFlag, 1);
            if (!faulty) bulkFence();
            barrier().arriveExpect(bytes);
            bulkLoad(&chunk(), r.mine, bytes, barrier());
            barrier().wait(nullptr, 0);
          }
        },
        {.ranks = 2});
}

TEST_CASE("a copy takes the number of one that its thread knows to have ended") {
  auto const number = [](std::uint32_t* p) {
    auto& checker = *sim::Checker::running;
    auto& copy = checker.beginBulkCopy(*sim::runningAgent, {"probe", p, 16}, 0);
    checker.endBulkCopy(*sim::runningAgent, copy);
    return copy.id;
  };
  auto const found = findings({.threads = 8, .kernels = 3}, [&](Ranks const& r) {
    auto const t = arch::threadIndex();
    auto* const own = &chunk().words[t * 8];
    auto const first = number(r.mine);
    for (int i = 0; i < 50; ++i) {
      write(own, fill, 8);
      bulkFence();
      for (unsigned half : {0, 1}) bulkStore(r.mine + t * 8 + half * 4, own + half * 4, 16);
      bulkCommit();
      bulkWait();
    }
    auto const last = number(r.mine);
    // Numbers come in chunks of 64; eight threads with three copies each need one.
    if (first / 64 != last / 64) arch::trap("new numbers were taken");
  });
  CHECK_MESSAGE(found.empty(), summaries(found));
}
