// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk copies of the simulated machine: they take effect at any time until somebody waits, and misuse is refused.
#include "mscclpp/device/bulk_copy.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "sim_fixture.hpp"

using namespace simtest;

namespace {

struct alignas(16) Chunk {
  std::uint32_t words[64];
};

constexpr std::uint32_t bytes = sizeof(Chunk);

Chunk& chunk() { return arch::blockShared<Chunk, Chunk>(); }
BulkBarrier& barrier() { return arch::blockShared<BulkBarrier, BulkBarrier>(); }

// One thread, with a zero-filled array of 64 words on its device.
void oneThread(std::uint64_t seed, std::function<void(std::uint32_t*)> const& kernel) {
  sim::run({.ranks = 1, .seed = seed}, [&](sim::RankContext&) {
    DeviceArray<std::uint32_t> words(0, 64);
    Stream stream;
    stream.launch({.threads = 1}, [&kernel, p = words.data()] { kernel(p); });
    stream.synchronize();
  });
}

// For how many seeds the kernel returns true.
int seedsWith(std::function<bool(std::uint32_t*)> const& kernel) {
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    oneThread(seed, [&](std::uint32_t* p) { count += kernel(p) ? 1 : 0; });
  }
  return count;
}

std::string failure(std::function<void(std::uint32_t*)> const& kernel) {
  return errorText([&] { oneThread(1, kernel); }, ErrorCode::deviceError);
}

void begin(unsigned count = 1) {
  barrier().init(count);
  chunk() = {};
  bulkFence();
}

}  // namespace

TEST_CASE("a store arrives at any time until it is waited for") {
  auto const store = [](std::uint32_t* p) {
    chunk().words[5] = 7;
    bulkFence();
    bulkStore(p, &chunk(), bytes);
    bulkCommit();
  };
  int const early = seedsWith([&](std::uint32_t* p) {
    store(p);
    bool const there = p[5] == 7;
    bulkWait();
    return there;
  });
  CHECK(early > 0);
  CHECK(early < 200);
  CHECK(seedsWith([&](std::uint32_t* p) {
          store(p);
          bulkWait();
          return p[5] == 7;
        }) == 200);
}

TEST_CASE("a store's source is read at any time until bulkWaitRead") {
  auto const overwrite = [](std::uint32_t* p, bool wait) {
    chunk().words[5] = 7;
    bulkFence();
    bulkStore(p, &chunk(), bytes);
    bulkCommit();
    if (wait) bulkWaitRead();
    chunk().words[5] = 8;
    bulkWait();
    return p[5] == 7;
  };
  int const whole = seedsWith([&](std::uint32_t* p) { return overwrite(p, false); });
  CHECK(whole > 0);
  CHECK(whole < 200);
  CHECK(seedsWith([&](std::uint32_t* p) { return overwrite(p, true); }) == 200);
  int const arrived = seedsWith([&](std::uint32_t* p) {
    chunk().words[5] = 7;
    bulkFence();
    bulkStore(p, &chunk(), bytes);
    bulkCommit();
    bulkWaitRead();
    return p[5] == 7;
  });
  CHECK(arrived > 0);
  CHECK(arrived < 200);
}

TEST_CASE("a load comes at any time until somebody looks at its barrier") {
  auto const load = [](std::uint32_t* p) {
    p[5] = 7;
    begin();
    barrier().arriveExpect(bytes);
    bulkLoad(&chunk(), p, bytes, barrier());
  };
  int const early = seedsWith([&](std::uint32_t* p) {
    load(p);
    bool const there = chunk().words[5] == 7;
    barrier().wait(nullptr, 0);
    return there;
  });
  CHECK(early > 0);
  CHECK(early < 200);
  CHECK(seedsWith([&](std::uint32_t* p) {
          load(p);
          barrier().wait(nullptr, 0);
          return chunk().words[5] == 7;
        }) == 200);
}

TEST_CASE("a store that nobody waits for arrives all the same") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    sim::run({.ranks = 1, .seed = seed}, [](sim::RankContext&) {
      DeviceArray<std::uint32_t> words(0, 64);
      Stream stream;
      stream.launch({.threads = 64}, [p = words.data()] {
        if (arch::threadIndex() == 0) {
          chunk().words[5] = 7;
          bulkFence();
          bulkStore(p, &chunk(), bytes);
          bulkCommit();
          arch::syncBlock();  // stays until the others have seen it
        } else {
          poll(nullptr, {layout::WaitKind::none, -1, 0, 7}, [p](std::uint64_t& seen) {
            seen = load<Order::relaxed, Scope::device>(p + 5);
            return seen == 7;
          });
          arch::syncBlock();
        }
      });
      stream.synchronize();
      stream.launch({.threads = 1}, [p = words.data() + 32] {
        chunk().words[0] = 9;
        bulkFence();
        bulkStore(p, &chunk(), bytes / 2);
      });
      stream.synchronize();
      CHECK(words[32] == 9);
    });
  }
}

TEST_CASE("a barrier's phase waits for its arrivals and its bytes") {
  CHECK(failure([](std::uint32_t* p) {
          begin(2);
          if (barrier().tryWait(0) || !barrier().tryWait(1)) arch::trap("the first phase");
          barrier().arrive();
          if (barrier().tryWait(0)) arch::trap("one arrival of two");
          barrier().arriveExpect(bytes);
          if (barrier().tryWait(0)) arch::trap("arrivals without bytes");
          bulkLoad(&chunk(), p, bytes / 2, barrier());
          if (barrier().tryWait(0)) arch::trap("half of the bytes");
          bulkLoad(&chunk().words[32], p, bytes / 2, barrier());
          if (!barrier().tryWait(0) || barrier().tryWait(1)) arch::trap("the second phase");
          // Bytes may come before they are announced.
          bulkLoad(&chunk(), p, bytes, barrier());
          if (barrier().tryWait(1)) arch::trap("bytes without arrivals");
          barrier().arrive();
          barrier().arriveExpect(bytes);
          if (!barrier().tryWait(1)) arch::trap("the third phase");
          barrier().invalidate();
          barrier().init(1);
          barrier().arrive();
          if (!barrier().tryWait(0)) arch::trap("a new barrier");
        }).empty());
}

TEST_CASE("misused copies fail the kernel with what was asked and what may be") {
  auto const store = [](std::size_t dst, std::size_t src, std::uint32_t count) {
    return failure([=](std::uint32_t* p) {
      auto* const from = reinterpret_cast<std::byte*>(&chunk()) + src;
      bulkStore(reinterpret_cast<std::byte*>(p) + dst, from, count);
      bulkCommit();
      bulkWait();
    });
  };
  CHECK(store(0, 0, bytes).empty());
  CHECK(
      contains(store(0, 0, 0), "block 0 thread 0: bulkStore of 0 bytes; the count must be a multiple of 16, from 16"));
  CHECK(contains(store(0, 0, 24), "bulkStore of 24 bytes; the count must be a multiple of 16"));
  CHECK(contains(store(8, 0, 16), "in global memory is not aligned to 16"));
  CHECK(contains(store(0, 4, 16), "in block-shared memory is not aligned to 16"));
  CHECK(contains(store(0, 16, bytes), "do not lie in the block's shared memory, of which 256 bytes are in use"));
  CHECK(contains(store(16, 0, bytes), "256 bytes at offset 16 run past the end of an allocation of 256 bytes"));
  CHECK(contains(failure([](std::uint32_t* p) { bulkStore(p, p, 16); }), "do not lie in the block's shared memory"));
  CHECK(contains(failure([](std::uint32_t*) { bulkStore(&chunk(), &chunk(), 16); }), "bulkStore: 16 bytes at"));
  CHECK(contains(failure([](std::uint32_t* p) {
                   begin();
                   bulkLoad(p, &chunk(), 16, barrier());
                 }),
                 "bulkLoad: 16 bytes at"));
  CHECK(
      contains(errorText([] { bulkCommit(); }, ErrorCode::invalidUsage), "bulkCommit was called outside of a kernel"));
}

TEST_CASE("puts that nobody can count fail the kernel") {
  auto const put = [](auto act) {
    return failure([act](std::uint32_t* p) {
      begin();
      act(p);
    });
  };
  CHECK(contains(put([](std::uint32_t* p) { putCounted(*p, 1u, barrier()); }), "putCounted: 4 bytes at"));
  CHECK(contains(put([](std::uint32_t* p) { putCounted(chunk().words[0], 1u, *reinterpret_cast<BulkBarrier*>(p)); }),
                 "do not lie in the shared memory of one block of this cluster that runs"));
  CHECK(contains(put([](std::uint32_t*) {
                   putCounted(*reinterpret_cast<std::uint64_t*>(&chunk().words[1]), std::uint64_t{1}, barrier());
                 }),
                 "putCounted of 8 bytes: the address"));
  CHECK(contains(failure([](std::uint32_t*) { putCounted(chunk().words[0], 1u, barrier()); }), "putCounted at"));
}

TEST_CASE("misused barriers fail the kernel") {
  auto const of = [](auto act) {
    return failure([act](std::uint32_t* p) {
      begin();
      act(p);
    });
  };
  CHECK(contains(failure([](std::uint32_t*) { barrier().arrive(); }), "BulkBarrier::arrive at"));
  CHECK(contains(failure([](std::uint32_t*) { barrier().tryWait(0); }), "where there is no BulkBarrier"));
  CHECK(contains(failure([](std::uint32_t* p) { bulkLoad(&chunk(), p, 16, barrier()); }), "bulkLoad at"));
  CHECK(contains(failure([](std::uint32_t* p) { reinterpret_cast<BulkBarrier*>(p)->init(1); }),
                 "is not 8 aligned bytes of the block's shared memory"));
  CHECK(contains(failure([](std::uint32_t*) { barrier().init(0); }), "init for 0 arrivals; the range is 1 to 1048575"));
  CHECK(contains(failure([](std::uint32_t*) { barrier().init(1u << 20); }), "init for 1048576 arrivals"));
  CHECK(contains(of([](std::uint32_t*) { barrier().init(1); }), "where there is one already: invalidate() it first"));
  CHECK(contains(of([](std::uint32_t*) { barrier().tryWait(2); }), "2 is no parity of a phase"));
  CHECK(contains(of([](std::uint32_t*) { barrier().arriveExpect(1u << 20); }),
                 "arriveExpect of 1048576 bytes with 0 on their way; the limit is 1048575"));
  CHECK(contains(of([](std::uint32_t*) {
                   barrier().arriveExpect(16);
                   barrier().arrive();
                 }),
                 "the phase has had its 1 arrivals and still waits for 16 bytes"));
  CHECK(contains(of([](std::uint32_t* p) {
                   bulkLoad(&chunk(), p, 16, barrier());
                   barrier().invalidate();
                 }),
                 "invalidate with 1 bulk loads for whose bytes nobody has waited"));
  CHECK(contains(of([](std::uint32_t* p) {
                   for (int i = 0; i < 5000; ++i) bulkLoad(&chunk(), p, bytes, barrier());
                   barrier().tryWait(0);
                 }),
                 "more than arriveExpect() announced"));
}

TEST_CASE("a wait for bytes that nobody sends is a dead-lock that says so") {
  auto const text = errorText(
      [] {
        oneThread(1, [](std::uint32_t*) {
          begin();
          barrier().arriveExpect(16);
          barrier().wait(nullptr, 0);
        });
      },
      ErrorCode::timeout);
  CAPTURE(text);
  CHECK(contains(text, "waits for arrivals and bytes at its block's bulk barrier at shared address"));
  CHECK(contains(text, "parity 0"));
}

TEST_CASE("memory given back while a copy is on its way fails the kernel") {
  bool failed = false;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    auto const text = errorText(
        [seed] {
          sim::run({.ranks = 1, .seed = seed}, [](sim::RankContext&) {
            auto* const p = static_cast<std::uint32_t*>(machine().allocate(0, bytes, MemoryKind::standard));
            DeviceArray<std::uint32_t> flags(0, 2);
            Stream stream;
            stream.launch({.threads = 1}, [p, f = flags.data()] {
              bulkStore(p, &chunk(), bytes);
              bulkCommit();
              store<Order::release, Scope::system>(f, 1u);
              waitUntil(f + 1, 1);
              bulkWait();
            });
            while (flags[0] == 0) machine().idle(stream.get());
            machine().release(p);
            flags[1] = 1;
            stream.synchronize();
          });
        },
        ErrorCode::deviceError);
    if (text.empty()) continue;
    CHECK(contains(text, "a bulk store is on its way: 256 bytes at"));
    failed = true;
  }
  CHECK(failed);
}
