// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as threads of this process, outside of deterministic runs.
#include <doctest/doctest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "sim/sim_fixture.hpp"

using namespace simtest;

namespace {

constexpr std::uint32_t rounds = 50;

layout::Watch* makeWatch(std::uint64_t limitNs) {
  auto* watch = static_cast<layout::Watch*>(machine().allocateHost(sizeof(layout::Watch)));
  watch->limitNs = limitNs;
  return watch;
}

}  // namespace

TEST_CASE("four host threads hand the machine over to each other") {
  constexpr int ranks = 4;
  std::vector<std::unique_ptr<DeviceArray<std::uint32_t>>> words;
  for (int rank = 0; rank < ranks; ++rank) words.push_back(std::make_unique<DeviceArray<std::uint32_t>>(rank, 1));
  for (int rank = 0; rank < ranks; ++rank) {
    machine().enablePeer(rank, machine().allocationOf(words[static_cast<std::size_t>((rank + 1) % ranks)]->data()));
  }
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto* mine = words[static_cast<std::size_t>(rank)]->data();
      auto* theirs = words[static_cast<std::size_t>((rank + 1) % ranks)]->data();
      Stream stream(rank);
      for (int launch = 0; launch < 5; ++launch) {
        stream.launch({.blocks = 1, .threads = 64}, [=] {
          auto const base = static_cast<std::uint32_t>(launch) * rounds;
          for (std::uint32_t round = 1; round <= rounds; ++round) {
            if (arch::threadIndex() == 0) {
              reduceAdd<Order::release, Scope::system>(theirs, 1u);
              waitUntil(mine, base + round);
            }
            arch::syncBlock();
          }
        });
        if (launch % 2 == 0) {
          stream.synchronize();
        } else {
          while (!machine().idle(stream.get())) std::this_thread::yield();
        }
      }
      stream.synchronize();
      ++ended;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(ended == ranks);
  for (auto const& word : words) CHECK((*word)[0] == 5 * rounds);
}

TEST_CASE("a wait that passes its watch's limit reports, leaves, and takes the rank's other waiters along") {
  DeviceArray<std::uint32_t> flag(0, 1);
  auto* watch = makeWatch(200'000'000);
  watch->rank = 6;
  Stream stream;
  auto* p = flag.data();
  std::atomic<unsigned> passed{0};
  stream.launch({.blocks = 2, .threads = 64}, [=, &passed] {
    if (arch::threadIndex() < 32) waitUntil(p, 3, watch, 5, 11);
    arch::syncBlock();  // those who gave up are not waited for
    ++passed;
  });
  stream.synchronize();
  CHECK(passed == 64);
  CHECK(watch->abort == 1);
  CHECK(watch->reportCount == 64);
  auto const& report = watch->reports[0];
  CHECK(report.complete == 1);
  CHECK(report.kind == layout::WaitKind::semaphore);
  CHECK(report.rank == 6);
  CHECK(report.peer == 5);
  CHECK(report.channel == 11);
  CHECK(report.expected == 3);
  CHECK(report.seen == 0);
  CHECK(report.waitedNs >= 200'000'000);
  CHECK(report.waitedNs < 5'000'000'000);
  machine().releaseHost(watch);
}

TEST_CASE("the host's abort flag ends waits without a limit") {
  DeviceArray<std::uint32_t> flag(0, 1);
  auto* watch = makeWatch(0);
  Stream stream;
  stream.launch({.blocks = 1, .threads = 32}, [p = flag.data(), watch] { waitUntil(p, 1, watch); });
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::atomic_ref<std::uint32_t>(watch->abort).store(1);
  });
  CHECK_NOTHROW(stream.synchronize());
  host.join();
  CHECK(watch->reportCount == 32);
  machine().releaseHost(watch);
}

TEST_CASE("a passed limit of synchronize says who waits, and the work may still end") {
  DeviceArray<std::uint32_t> flag(0, 1);
  Stream stream;
  auto* p = flag.data();
  stream.launch(
      {.blocks = 1, .threads = 32}, [p] { waitUntil(p, 1, nullptr, 3, 8); }, "late");
  auto const text = errorText([&] { stream.synchronize(std::chrono::milliseconds(50)); }, ErrorCode::timeout);
  CHECK(contains(text, "has not ended within 0.050 s"));
  CHECK(contains(
      text, "kernel \"late\" block 0 threads 0-31: waits for a signal of rank 3 on channel 8, expected 1, seen 0"));
  std::atomic_ref<std::uint32_t>(*p).store(1);
  CHECK_NOTHROW(stream.synchronize());
}

TEST_CASE("memory that is released under a kernel whose wait has timed out is unmapped once nothing uses it") {
  DeviceArray<std::uint32_t> flag(0, 1);
  auto buffer = std::make_unique<DeviceArray<std::uint32_t>>(0, 64);
  int const descriptor = machine().exportDescriptor(machine().allocationOf(buffer->data())).value();
  auto* const imported = static_cast<std::uint32_t*>(machine().importDescriptor(0, descriptor, 64 * 4));
  ::close(descriptor);
  auto* const own = buffer->data();
  auto const isMapped = [](void* p) { return ::msync(p, 1, MS_ASYNC) == 0; };
  Stream stream;
  stream.launch({.threads = 1}, [p = flag.data(), own, imported] {
    waitUntil(p, 1);
    own[5] = imported[6] = 7;
  });
  CHECK_FALSE(errorText([&] { stream.synchronize(std::chrono::milliseconds(20)); }, ErrorCode::timeout).empty());
  buffer.reset();
  machine().releaseImport(imported);
  CHECK(isMapped(own));
  CHECK(isMapped(imported));
  CHECK_FALSE(errorText([&] { machine().allocationOf(own); }, ErrorCode::invalidUsage).empty());
  std::atomic_ref<std::uint32_t>(flag[0]).store(1);
  CHECK_NOTHROW(stream.synchronize());
  DeviceArray<std::uint32_t>(0, 1);
  CHECK_FALSE(isMapped(own));
  CHECK_FALSE(isMapped(imported));
}

TEST_CASE("an error of a kernel reaches the thread that synchronizes its stream") {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      Stream stream(rank);
      for (int i = 0; i < 20; ++i) {
        stream.launch({.blocks = 2, .threads = 64}, [rank] {
          arch::syncBlock();
          if (rank == 2 && arch::threadIndex() == 1) arch::trap("rank 2 is special");
          arch::syncBlock();
        });
        auto const text = errorText([&] { stream.synchronize(); }, ErrorCode::deviceError);
        if (contains(text, "rank 2 is special") == (rank == 2)) ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 80);
}

TEST_CASE("a stream whose work never ends can be destroyed while another is in use") {
  DeviceArray<std::uint32_t> flag(0, 1);
  try {
    Stream stuck;
    stuck.launch({.blocks = 1, .threads = 32}, [p = flag.data()] { waitUntil(p, 1); });
    throw Error(ErrorCode::aborted, "the caller fails");  // so that destruction does not wait for the work
  } catch (Error const&) {
  }
  Stream stream;
  stream.launch({}, [] { arch::syncBlock(); });
  CHECK_NOTHROW(stream.synchronize());
}

TEST_CASE("other threads are kept off the machine during a deterministic run") {
  std::string text;
  sim::run({.ranks = 1}, [&](sim::RankContext&) {
    std::thread other([&] { text = errorText([] { Stream stream; }, ErrorCode::invalidUsage); });
    other.join();
  });
  CHECK(contains(text, "a deterministic run"));
}

TEST_CASE("kernels run while their host does something else") {
  auto* flag = static_cast<std::uint32_t*>(machine().allocateHost(4));
  Stream stream;
  for (std::uint32_t launch = 1; launch <= 3; ++launch) {
    stream.launch({.blocks = 2, .threads = 64}, [flag] {
      arch::syncBlock();
      if (arch::threadIndex() == 0) reduceAdd<Order::release, Scope::system>(flag, 1u);
    });
    for (int i = 0; i < 5000 && std::atomic_ref<std::uint32_t>(*flag).load() != 2 * launch; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(std::atomic_ref<std::uint32_t>(*flag).load() == 2 * launch);
  }
  stream.synchronize();
  machine().releaseHost(flag);
}
