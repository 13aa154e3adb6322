// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory channels between ranks: put, get, signals, packets of every format, refusals, waits that nobody ends.
#include "mscclpp/device/memory_channel.hpp"

#include <chrono>
#include <string>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "support/pair.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

struct PutKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, std::uint64_t dstOffset,
                                 std::uint64_t srcOffset, std::uint64_t bytes) const {
    channel.put(thisBlock(), dstOffset, srcOffset, bytes);
    thisBlock().sync();
    if (thisBlock().rank() == 0) {
      channel.signal();
      channel.wait();
    }
    thisBlock().sync();
  }
};

struct GetKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, std::uint64_t bytes) const {
    channel.get(8, 16, bytes, thisBlock().rank(), thisBlock().size());
  }
};

template <class P>
struct PacketKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, std::uint64_t bytes, std::uint32_t rounds,
                                 std::uint64_t half) const {
    for (std::uint32_t flag = 1; flag <= rounds; ++flag) {
      auto const offset = flag % 2 * half;
      channel.template putPackets<P>(thisBlock(), offset, 0, bytes, flag);
      channel.template unpackPackets<P>(thisBlock(), offset, bytes, bytes, flag);
      thisBlock().sync();
    }
  }
};

// Lines that lanes of a warp send and take on different ways, some of them late.
struct DivergedLinesKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, std::uint32_t rounds,
                                 unsigned* wrong) const {
    std::uint32_t const lane = thisBlock().rank();
    for (std::uint32_t flag = 1; flag <= rounds; ++flag) {
      std::uint64_t const at = flag % 2 * 512 + lane * 16;
      Payload<4> const sent{{flag, flag, flag, flag}};
      if (lane == flag % 32) {
        hesitate(flag);
        LL128::store(channel.dst + at, sent, flag, true);
      } else {
        LL128::store(channel.dst + at, sent, flag, true);
      }
      Words4 raw{};
      auto const look = [&] {
        raw = LL128::load(channel.packetBuffer + at, true);
        return !arch::warpAny(LL128::lacks(raw, flag));
      };
      poll(channel.semaphore.watch, {layout::WaitKind::packet, channel.semaphore.peer, lane, flag},
           [&](std::uint64_t& seen) {
             seen = LL128::seenIn(raw, flag);
             if (lane == flag / 32 % 32) return look();
             if (lane == 7) hesitate(flag);
             return look();
           });
      auto const taken = LL128::payloadOf(raw);
      unsigned const words = lane % 8 == 7 ? 2 : 4;
      for (unsigned i = 0; i < words; ++i) {
        if (taken.word[i] != flag) ++wrong[lane];
      }
    }
  }

 private:
  MSCCLPP_DEVICE static void hesitate(std::uint32_t round) {
    for (std::uint32_t i = 0; i < round % 4 * 20; ++i) (void)arch::nanoseconds();
  }
};

struct PollKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, unsigned* seen) const {
    if (thisBlock().rank() != 0) return;
    unsigned failed = 0;
    channel.relaxedSignal();
    channel.relaxedWait();
    channel.signal();
    channel.signal();
    while (!channel.poll()) ++failed;
    channel.wait();
    seen[0] = 1;
    // Three signals were consumed; a fourth must not be there.
    seen[1] = channel.poll() ? 1 : 0;
  }
};

struct WaitKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel) const {
    if (thisBlock().rank() == 0) channel.wait();
    thisBlock().sync();
  }
};

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("put, signal, wait: the data is there") {
  if (!canRun(2)) return;
  constexpr std::size_t bytes = 1000;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    forEachRank(2,
                [&](Rank& rank) {
                  Pair pair(rank, bytes, bytes);
                  auto const mine = randomInput<std::uint8_t>(seed, rank.rank, bytes);
                  auto const theirs = randomInput<std::uint8_t>(seed, 1 - rank.rank, bytes);
                  copyToDevice(pair.local, std::span<std::uint8_t const>(mine));
                  rank.meet();
                  launch(rank.stream, {.blocks = 1, .threads = 64}, PutKernel{}, pair.channel.deviceHandle(), 13u, 5u,
                         900u);
                  rank.synchronize();
                  auto const inbox = copyToHost(pair.inbox);
                  std::vector<std::uint8_t> expected(bytes, 0);
                  std::copy_n(theirs.begin() + 5, 900, expected.begin() + 13);
                  CHECK(inbox == expected);
                },
                {.seed = seed});
  }
}

TEST_CASE("get reads the peer's memory") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    Pair pair(rank, 400, 400);
    auto const content = randomInput<std::uint8_t>(5, rank.rank, 400);
    auto const theirs = randomInput<std::uint8_t>(5, 1 - rank.rank, 400);
    copyToDevice(pair.inbox, std::span<std::uint8_t const>(content));
    rank.communicator.bootstrap()->barrier();
    launch(rank.stream, {.blocks = 1, .threads = 32}, GetKernel{}, pair.channel.deviceHandle(), 300u);
    rank.synchronize();
    std::vector<std::uint8_t> expected(400, 0);
    std::copy_n(theirs.begin() + 8, 300, expected.begin() + 16);
    CHECK(copyToHost(pair.local) == expected);
  });
}

TEST_CASE_TEMPLATE("packets carry ragged data, round after round", P, LL8, LL16, LL128) {
  if (!canRun(2)) return;
  for (std::size_t bytes : {1, 7, 8, 119, 120, 121, 1000}) {
    CAPTURE(bytes);
    forEachRank(2,
                [&](Rank& rank) {
                  std::uint64_t const half = 4096;
                  Pair pair(rank, 2 * bytes, 2 * half);
                  auto const mine = randomInput<std::uint8_t>(bytes, rank.rank, bytes);
                  auto const theirs = randomInput<std::uint8_t>(bytes, 1 - rank.rank, bytes);
                  copyToDevice(pair.local, std::span<std::uint8_t const>(mine));
                  rank.meet();
                  launch(rank.stream, {.blocks = 1, .threads = 64}, PacketKernel<P>{}, pair.channel.deviceHandle(),
                         bytes, 6u, half);
                  rank.synchronize();
                  auto const local = copyToHost(pair.local);
                  auto const middle = local.begin() + static_cast<std::ptrdiff_t>(bytes);
                  CHECK(std::vector<std::uint8_t>(local.begin(), middle) == mine);
                  CHECK(std::vector<std::uint8_t>(middle, local.end()) == theirs);
                },
                {.seed = bytes});
  }
}

TEST_CASE("lines are whole also where the lanes of a warp come on different ways") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    Pair pair(rank, 64, 1024);
    GpuBuffer<unsigned> wrong(rank.device, 32);
    std::uint32_t const rounds = rank.device.kind == DeviceKind::cuda ? 20'000 : 100;
    rank.meet();
    launch(rank.stream, {.blocks = 1, .threads = 32}, DivergedLinesKernel{}, pair.channel.deviceHandle(), rounds,
           wrong.data());
    rank.synchronize();
    CHECK(copyToHost(wrong) == std::vector<unsigned>(32, 0));
  });
}

TEST_CASE("each signal ends one wait") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    Pair pair(rank, 64, 64);
    GpuBuffer<unsigned> seen(rank.device, 2);
    rank.meet();
    launch(rank.stream, {.blocks = 1, .threads = 32}, PollKernel{}, pair.channel.deviceHandle(), seen.data());
    rank.synchronize();
    CHECK(copyToHost(seen) == std::vector<unsigned>{1, 0});
  });
}

TEST_CASE("a range outside the buffers is refused, with numbers") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    Pair pair(rank, 1000, 500);
    auto const refused = [&](std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes) {
      launch(rank.stream, {.blocks = 1, .threads = 64}, PutKernel{}, pair.channel.deviceHandle(), dstOffset, srcOffset,
             bytes);
      try {
        rank.communicator.synchronize(rank.stream);
      } catch (Error const& error) {
        CHECK(error.code() == ErrorCode::invalidUsage);
        return std::string(error.what());
      }
      return std::string();
    };
    auto const remote = refused(100, 0, 401);
    INFO(remote);
    CHECK(contains(remote, "501"));
    CHECK(contains(remote, "500"));
    CHECK(contains(remote, "rank " + std::to_string(1 - rank.rank)));
    auto const local = refused(0, 900, 101);
    INFO(local);
    CHECK(contains(local, "1001"));
    // Ends that 64 bits do not hold.
    constexpr auto most = ~std::uint64_t{0};
    CHECK(contains(refused(most - 4, 0, 8), "a buffer of rank"));
    CHECK(contains(refused(0, most - 4, 8), "this rank's buffer"));
    CHECK(contains(refused(8, 8, most - 4), "a buffer of rank"));
    rank.communicator.bootstrap()->barrier();
  });
}

TEST_CASE("a wait that nobody ends says who waits for what") {
  if (!canRun(2)) return;
  auto const waitForNothing = [](Rank& rank) {
    Pair pair(rank, 64, 64);
    if (rank.rank == 1) return rank.communicator.bootstrap()->barrier();
    rank.communicator.setTimeLimit(std::chrono::milliseconds(300));
    launch(rank.stream, {.blocks = 1, .threads = 64}, WaitKernel{}, pair.channel.deviceHandle());
    std::string text;
    try {
      rank.communicator.synchronize(rank.stream);
    } catch (Error const& error) {
      CHECK(error.code() == ErrorCode::timeout);
      text = error.what();
    }
    rank.communicator.bootstrap()->barrier();
    INFO(text);
    CHECK(contains(text, "rank 0 block 0 thread 0"));
    CHECK(contains(text, "rank 1"));
    CHECK(contains(text, "expected count 1, seen 0"));
  };
#if defined(__CUDACC__)
  forEachRank(2, waitForNothing);
#else
  // The deterministic machine needs no limit: it sees that nobody can go on.
  std::string text;
  try {
    forEachRank(2, waitForNothing, {.seed = 3});
  } catch (Error const& error) {
    text = error.what();
  }
  INFO(text);
  CHECK(contains(text, "rank 0"));
  CHECK(contains(text, "a signal of rank 1"));
  CHECK(contains(text, "seed 3"));
#endif
}
