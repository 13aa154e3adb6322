// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <fstream>

#include "sim/sim_fixture.hpp"

using namespace simtest;

namespace {

std::string kernelError(LaunchShape shape, std::function<void()> const& kernel) {
  return errorText([&] { runKernel({}, shape, kernel); }, ErrorCode::deviceError);
}

struct Slot;
struct OtherSlot;

}  // namespace

TEST_CASE("no thread passes a barrier before the last has come") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    unsigned arrived = 0, early = 0;
    runKernel({.ranks = 1, .seed = seed, .preemption = 0.5}, {.blocks = 1, .threads = 100}, [&] {
      for (unsigned round = 1; round <= 5; ++round) {
        ++arrived;
        arch::syncBlock();
        if (arrived != round * 100) ++early;
        arch::syncBlock();
      }
    });
    CHECK(early == 0);
  }
}

TEST_CASE("threads that have left are not waited for") {
  unsigned passed = 0;
  runKernel({}, {.blocks = 2, .threads = 96}, [&] {
    if (arch::threadIndex() % 3 == 0) arch::exitKernel();
    arch::syncBlock();
    if (arch::threadIndex() >= 64) return;
    arch::syncWarp();
    arch::syncBlock();
    ++passed;
  });
  CHECK(passed == 2 * 42);
}

TEST_CASE("a thread that leaves late releases those who wait") {
  unsigned passed = 0;
  runKernel({.ranks = 1, .preemption = 0}, {.blocks = 1, .threads = 64}, [&] {
    if (arch::threadIndex() == 5) {
      DeviceArray<std::uint32_t> local(0, 1);  // destroyed on the way out
      arch::syncBlock();
      arch::exitKernel();
    }
    arch::syncBlock();
    arch::syncBlock();
    arch::syncWarp();
    ++passed;
  });
  CHECK(passed == 63);
}

TEST_CASE("named barriers join the warps they are told to") {
  std::array<unsigned, 2> arrived{};
  unsigned early = 0;
  runKernel({.ranks = 1, .seed = 11, .preemption = 0.5}, {.blocks = 1, .threads = 256}, [&] {
    unsigned const half = arch::threadIndex() / 128;
    for (unsigned round = 1; round <= (half == 0 ? 3u : 7u); ++round) {  // the halves do not wait for each other
      ++arrived[half];
      arch::syncBarrier(1 + half, 128);
      if (arrived[half] < round * 128) ++early;
      arch::syncBarrier(1 + half, 128);
    }
  });
  CHECK(early == 0);
  CHECK(arrived[0] == 3 * 128);
  CHECK(arrived[1] == 7 * 128);
}

TEST_CASE("a warp of a named barrier that has left is not waited for again") {
  unsigned passed = 0;
  runKernel({}, {.blocks = 1, .threads = 96}, [&] {
    arch::syncBarrier(3, 96);
    if (arch::threadIndex() >= 64) arch::exitKernel();
    if (arch::threadIndex() == 7) arch::exitKernel();
    arch::syncBarrier(3, 96);
    ++passed;
  });
  CHECK(passed == 63);
}

TEST_CASE("barrier misuse is named") {
  CHECK(contains(kernelError({.threads = 64}, [] { arch::syncBarrier(16, 64); }), "there is no barrier 16"));
  CHECK(contains(kernelError({.threads = 64}, [] { arch::syncBarrier(0, 64); }), "there is no barrier 0"));
  CHECK(contains(kernelError({.threads = 64}, [] { arch::syncBarrier(1, 40); }), "multiple of 32"));
  CHECK(contains(kernelError({.threads = 64}, [] { arch::syncBarrier(1, 96); }), "up to the block's 64"));
  CHECK(contains(kernelError({.threads = 96}, [] { arch::syncBarrier(2, arch::threadIndex() < 32 ? 64 : 96); }),
                 "joins barrier 2"));
  auto const text = errorText(
      [] {
        runKernel({}, {.threads = 96}, [] {
          if (arch::threadIndex() < 64) arch::syncBarrier(4, 96);
          if (arch::threadIndex() >= 64) arch::syncBarrier(5, 64);
        });
      },
      ErrorCode::timeout);
  CHECK(contains(text, "threads 0-63: waits at barrier 4 (64 of 96 threads have come)"));
  CHECK(contains(text, "threads 64-95: waits at barrier 5 (32 of 64 threads have come)"));
}

TEST_CASE("lanes exchange values") {
  unsigned wrong = 0;
  runKernel({.ranks = 1, .seed = 2, .preemption = 0.3}, {.blocks = 2, .threads = 64}, [&] {
    unsigned const lane = arch::threadIndex() % 32;
    auto const value = [](unsigned l, unsigned round) { return l * 1000 + arch::threadIndex() / 32 + round; };
    for (unsigned round = 0; round < 4; ++round) {
      if (arch::shuffle(value(lane, round), 5) != value(5, round)) ++wrong;
      if (arch::shuffle(value(lane, round), (lane + 1) % 32) != value((lane + 1) % 32, round)) ++wrong;
      if (arch::shuffleXor(value(lane, round), 16) != value(lane ^ 16, round)) ++wrong;
      if (arch::shuffleDown(value(lane, round), 3) != value(lane + 3 < 32 ? lane + 3 : lane, round)) ++wrong;
    }
    Words4 const wide = arch::shuffle(Words4{{lane, lane + 1, lane + 2, lane + 3}}, 31);
    if (wide.w[0] != 31 || wide.w[3] != 34) ++wrong;
    if (arch::shuffle(lane * 0.5, 9) != 4.5) ++wrong;
    if (arch::ballot(lane % 2 == 0) != 0x55555555u) ++wrong;
    if (!arch::warpAny(lane == 31) || arch::warpAny(false)) ++wrong;
    if (!arch::warpAll(true) || arch::warpAll(lane != 13)) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("masks and partial warps") {
  unsigned wrong = 0;
  runKernel({.ranks = 1, .seed = 4, .preemption = 0.3}, {.blocks = 1, .threads = 48}, [&] {
    unsigned const lane = arch::threadIndex() % 32;
    if (arch::threadIndex() >= 32) {  // sixteen lanes are all there is of this warp
      if (arch::ballot(true) != 0xffffu) ++wrong;
      if (!arch::warpAll(true)) ++wrong;
      arch::syncWarp();
      if (arch::shuffleXor(lane, 8) != (lane ^ 8)) ++wrong;
      return;
    }
    unsigned const half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    for (unsigned i = 0; i < (lane < 16 ? 2u : 5u); ++i) {  // the halves do not wait for each other
      if (arch::shuffleXor(lane, 1, half) != (lane ^ 1)) ++wrong;
      if (arch::ballot(lane % 4 == 0, half) != (0x11111111u & half)) ++wrong;
    }
    if (arch::ballot(true) != 0xffffffffu) ++wrong;
    if (lane == 3) arch::exitKernel();
    if (arch::ballot(true) != 0xfffffff7u) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("warp misuse is named") {
  CHECK(contains(kernelError({.threads = 48}, [] { arch::shuffleXor(arch::threadIndex(), 16); }),
                 "takes no part in the shuffle"));
  CHECK(contains(kernelError({}, [] { arch::syncWarp(0xfffffffeu); }), "lane 0: syncWarp with mask 0xfffffffe"));
  CHECK(contains(kernelError({}, [] { arch::threadIndex() < 16 ? arch::syncWarp() : void(arch::ballot(true)); }),
                 "of the same mask 0xffffffff is in"));
  auto const text = errorText(
      [] {
        runKernel({}, {}, [] {
          if (arch::threadIndex() == 9) arch::syncBlock();
          arch::syncWarp();
        });
      },
      ErrorCode::timeout);
  CHECK(contains(text, "threads 0-8,10-31: waits for the lanes of its warp in mask 0xffffffff"));
  CHECK(contains(text, "thread 9: waits at the block's barrier (1 of 32"));
}

TEST_CASE("shared memory belongs to the block, and to its type and tag") {
  unsigned wrong = 0;
  runKernel({.ranks = 1, .seed = 3, .preemption = 0.2}, {.blocks = 4, .threads = 64, .dynamicShared = 4096}, [&] {
    struct Table {
      unsigned values[64];
    };
    auto& table = arch::blockShared<Table, Slot>();
    auto& other = arch::blockShared<Table, OtherSlot>();
    auto& wide = arch::blockShared<Words4, Slot>();
    if (reinterpret_cast<std::uintptr_t>(&wide) % 16 != 0) ++wrong;
    unsigned const t = arch::threadIndex();
    table.values[t] = arch::blockIndex() * 100 + t;
    other.values[t] = 7;
    auto* dynamic = reinterpret_cast<unsigned*>(arch::dynamicShared());
    if (reinterpret_cast<std::uintptr_t>(dynamic) % 128 != 0) ++wrong;
    dynamic[t] = t;
    dynamic[1023 - t] = t;
    arch::syncBlock();
    if (table.values[63 - t] != arch::blockIndex() * 100 + 63 - t) ++wrong;
    if (other.values[63 - t] != 7) ++wrong;
    if (dynamic[63 - t] != 63 - t) ++wrong;
  });
  CHECK(wrong == 0);
  std::byte* none = nullptr;
  runKernel({}, {}, [&] { none = arch::dynamicShared(); });
  CHECK(none == nullptr);
  CHECK(contains(kernelError({.dynamicShared = 200 * 1024},
                             [] {
                               struct Large {
                                 unsigned char bytes[64 * 1024];
                               };
                               arch::blockShared<Large, Slot>();
                             }),
                 "a block has 232448"));
}

TEST_CASE("kernels have readable names") {
  CHECK(sim::kernelName(typeid(Words4)) == "Words4");
  CHECK(sim::kernelName(typeid(void (*)(int))) == "void (*)(int)");
}

TEST_CASE("launch shapes are checked") {
  sim::run({}, [](sim::RankContext&) {
    Stream stream;
    auto refused = [&](LaunchShape shape) {
      return errorText(
          [&] {
            stream.launch(
                shape, [] {}, "shaped");
          },
          ErrorCode::invalidUsage);
    };
    CHECK(contains(refused({.blocks = 0}), "launch of kernel \"shaped\": 0 blocks"));
    CHECK(contains(refused({.threads = 0}), "0 threads"));
    CHECK(contains(refused({.threads = 1025}), "1025 threads"));
    CHECK(contains(refused({.dynamicShared = 1 << 20}), "1048576 bytes of dynamic shared memory"));
    CHECK(contains(errorText([] { sim::enqueueKernel(nullptr, {}, "none", [] {}); }, ErrorCode::invalidUsage),
                   "is no stream"));
  });
}

// A stack takes two of the system's mappings; what else the process does needs some as well.
TEST_CASE("more threads at once than there can be stacks for fail their kernel with a sentence") {
  std::size_t mappings = 65530;
  std::ifstream("/proc/sys/vm/max_map_count") >> mappings;
  auto const threads = mappings / 2;
  if (threads > 70000) return;  // raised on this system
  auto const blocks = static_cast<unsigned>(threads / 1024 + 1);
  sim::install({.multiprocessors = static_cast<int>(blocks)});
  sim::run({.ranks = 1}, [&](sim::RankContext&) {
    Stream stream;
    stream.launch(
        {.blocks = blocks, .threads = 1024}, [] { arch::syncBlock(); }, "crowd");
    // All blocks' threads begin before any block has come to its barrier with all of them.
    auto const text = errorText([&] { stream.synchronize(); }, ErrorCode::deviceError);
    CHECK(contains(text, "no memory for the stack of simulated thread number"));
    CHECK(contains(text, "launch fewer threads"));
  });
  sim::install({.multiprocessors = static_cast<int>(blocks), .stackGuards = false});
  unsigned passed = 0;
  sim::run({.ranks = 1}, [&](sim::RankContext&) {
    Stream stream;
    stream.launch(
        {.blocks = blocks, .threads = 1024},
        [&] {
          arch::syncBlock();
          ++passed;
        },
        "crowd");
    stream.synchronize();
  });
  CHECK(passed == blocks * 1024);
  sim::install({});
}
