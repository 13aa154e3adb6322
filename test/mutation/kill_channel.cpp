// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Signals, waits and one-sided accesses of a channel.
#include <cstring>
#include <vector>

#include "explored.hpp"
#include "mscclpp/device/device_handle.hpp"
#include "support/pair.hpp"

using namespace mscclpp_test;

namespace {

// Rounds of put, signal, wait, read, acknowledge. The last waits are polls, and a relaxed pair counts alone.
struct RoundsKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, std::uint8_t* local,
                                 std::uint8_t const* inbox, std::uint64_t bytes, unsigned rounds,
                                 unsigned* wrong) const {
    auto const block = thisBlock();
    for (unsigned round = 1; round <= rounds; ++round) {
      for (std::uint64_t i = block.rank(); i < bytes; i += block.size()) {
        local[i] = static_cast<std::uint8_t>(i * 7 + round);
      }
      block.sync();
      channel.put(block, 3, 0, bytes);
      block.sync();
      if (block.rank() == 0) channel.signal();
      if (block.rank() == 5) {
        if (round % 2 == 0) {
          poll(channel.semaphore.watch, {layout::WaitKind::semaphore, 1, 0, 0},
               [&](std::uint64_t&) { return channel.poll(); });
        } else {
          channel.wait();
        }
      }
      block.sync();
      for (std::uint64_t i = block.rank(); i < bytes; i += block.size()) {
        if (inbox[i + 3] != static_cast<std::uint8_t>(i * 7 + round)) ++wrong[block.rank()];
      }
      block.sync();
      if (block.rank() == 5) {  // the peer may overwrite it
        channel.signal();
        channel.wait();
      }
      block.sync();
    }
    if (block.rank() == 0) {
      channel.relaxedSignal();
      channel.relaxedWait();
      if (channel.poll()) ++wrong[0];
    }
  }
};

// One-sided: rank 0 writes and reads elements of its peer's inbox, and copies a range out and back in.
struct OneSidedKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, std::uint32_t* got) const {
    auto const rank = thisBlock().rank();
    channel.write<std::uint32_t>(rank + 4, 500 + rank);
    if (rank < 4) got[rank] = channel.read<std::uint32_t>(rank);
    thisBlock().sync();
    channel.get(4 * 4, 8, 4 * 32, rank, thisBlock().size());
    thisBlock().sync();
    channel.put(0, 12, 4 * 4, rank, thisBlock().size());
  }
};

}  // namespace

TEST_CASE("put, signal, wait, acknowledge") {
  everySchedule(2, [](Rank& rank) {
    Pair pair(rank, 70, 73);
    GpuBuffer<unsigned> wrong(rank.device, 32);
    launch(rank.stream, {.blocks = 1, .threads = 32}, RoundsKernel{}, pair.channel.deviceHandle(), pair.local.data(),
           pair.inbox.data(), 70u, 4u, wrong.data());
    rank.synchronize();
    CHECK(copyToHost(wrong) == std::vector<unsigned>(32, 0));
  });
}

TEST_CASE("elements and ranges of the peer's memory") {
  everySchedule(2, [](Rank& rank) {
    Pair pair(rank, 8 + 4 * 32, 4 * 36);
    GpuBuffer<std::uint32_t> got(rank.device, 32);
    std::vector<std::uint8_t> content(4 * 36, 0);
    for (std::size_t i = 0; i < 36; ++i) content[4 * i] = static_cast<std::uint8_t>(i + 1);
    copyToDevice(pair.inbox, std::span<std::uint8_t const>(content));
    rank.communicator.bootstrap()->barrier();
    if (rank.rank == 0) {
      launch(rank.stream, {.blocks = 1, .threads = 32}, OneSidedKernel{}, pair.channel.deviceHandle(), got.data());
    }
    rank.synchronize();
    auto const local = copyToHost(pair.local);
    auto const inbox = copyToHost(pair.inbox);
    auto const words = copyToHost(got);
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint32_t const written = 500 + static_cast<std::uint32_t>(i);
      std::uint32_t fetched = 0;
      std::uint32_t stored = 0;
      std::memcpy(&fetched, &local[8 + 4 * i], 4);
      std::memcpy(&stored, &inbox[16 + 4 * i], 4);
      if (rank.rank == 0) {
        CHECK(fetched == written);
        if (i < 4) CHECK(words[i] == i + 1);
      } else {
        CHECK(stored == written);
        if (i < 4) CHECK(inbox[4 * i] == (501 + i) % 256);
      }
    }
    CHECK(std::vector<std::uint8_t>(local.begin(), local.begin() + 8) == std::vector<std::uint8_t>(8, 0));
  });
}

namespace {

struct WholeKernel {
  MSCCLPP_DEVICE void operator()(MemoryChannelDeviceHandle const& channel, std::uint64_t bytes) const {
    channel.put(thisBlock(), 0, 0, bytes);
  }
};

}  // namespace

TEST_CASE("a copy between buffers that end with a page") {
  constexpr std::size_t bytes = 16384;
  everySchedule(
      2,
      [&](Rank& rank) {
        Pair pair(rank, bytes, bytes);
        pair.local.fill(static_cast<unsigned char>(rank.rank + 1));
        rank.communicator.bootstrap()->barrier();
        launch(rank.stream, {.blocks = 1, .threads = 256}, WholeKernel{}, pair.channel.deviceHandle(), bytes);
        rank.synchronize();
        CHECK(copyToHost(pair.inbox) == std::vector<std::uint8_t>(bytes, static_cast<std::uint8_t>(2 - rank.rank)));
      },
      1);
}
