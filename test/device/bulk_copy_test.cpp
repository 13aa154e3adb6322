// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk copies in both directions, to and from a peer, in groups, with the barriers that wait for them.
#include "mscclpp/device/bulk_copy.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/semaphore.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

constexpr unsigned chunkBytes = 2048;

struct alignas(16) Chunk {
  std::uint8_t bytes[chunkBytes];
};

struct CapabilityKernel {
  MSCCLPP_DEVICE void operator()(int* has) const { *has = hasBulkCopies() ? 1 : 0; }
};

// False, with a message, where the GPU is older than bulk copies.
bool canCopy(Rank const& rank) {
  GpuBuffer<int> has(rank.device, 1);
  launch(rank.stream, {.blocks = 1, .threads = 1}, CapabilityKernel{}, has.data());
  rank.synchronize();
  if (copyToHost(has)[0] != 0) return true;
  MESSAGE("left out: this GPU has no bulk copies");
  return false;
}

// The block writes shared memory, one thread stores it.
struct StoreKernel {
  MSCCLPP_DEVICE void operator()(std::uint8_t* dst, unsigned bytes) const {
    auto const block = thisBlock();
    auto& chunk = arch::blockShared<Chunk, StoreKernel>();
    for (unsigned i = block.rank(); i < bytes; i += block.size()) chunk.bytes[i] = static_cast<std::uint8_t>(i * 7 + 3);
    bulkFence();
    block.sync();
    if (block.rank() == 0) {
      bulkStore(dst, &chunk, bytes);
      bulkCommit();
      bulkWait();
    }
  }
};

// One thread loads into shared memory, all read it.
struct LoadKernel {
  MSCCLPP_DEVICE void operator()(std::uint8_t* dst, std::uint8_t const* src, unsigned bytes,
                                 layout::Watch* watch) const {
    auto const block = thisBlock();
    auto& chunk = arch::blockShared<Chunk, LoadKernel>();
    auto& barrier = arch::blockShared<BulkBarrier, LoadKernel>();
    if (block.rank() == 0) barrier.init(1);
    block.sync();
    if (block.rank() == 0) {
      barrier.arriveExpect(bytes);
      bulkLoad(&chunk, src, bytes, barrier);
    }
    barrier.wait(watch, 0);
    for (unsigned i = block.rank(); i < bytes; i += block.size()) dst[i] = chunk.bytes[i];
  }
};

// Copies `chunks` chunks through two buffers in turn: while one is stored, the other is loaded.
struct PipelineKernel {
  MSCCLPP_DEVICE void operator()(std::uint8_t* dst, std::uint8_t const* src, unsigned chunks,
                                 layout::Watch* watch) const {
    auto& buffers = arch::blockShared<Buffers, PipelineKernel>();
    auto& barriers = arch::blockShared<Barriers, PipelineKernel>();
    if (thisBlock().rank() != 0) return;
    auto const load = [&](unsigned i) {
      barriers.of[i % 2].arriveExpect(chunkBytes);
      bulkLoad(&buffers.of[i % 2], src + std::size_t{i} * chunkBytes, chunkBytes, barriers.of[i % 2]);
    };
    for (auto& barrier : barriers.of) barrier.init(1);
    load(0);
    for (unsigned i = 0; i < chunks; ++i) {
      if (i + 1 < chunks) {
        bulkWaitRead();  // the store before last has left the buffer that the next load fills
        load(i + 1);
      }
      barriers.of[i % 2].wait(watch, i / 2 % 2);
      bulkStore(dst + std::size_t{i} * chunkBytes, &buffers.of[i % 2], chunkBytes);
      bulkCommit();
    }
    bulkWait();
  }

 private:
  struct Buffers {
    Chunk of[2];
  };
  struct Barriers {
    BulkBarrier of[2];
  };
};

// Groups end in order: with at most one on its way, all before it have arrived. Counts those that have not.
struct GroupsKernel {
  MSCCLPP_DEVICE void operator()(std::uint8_t* dst, unsigned chunks, unsigned* missing) const {
    constexpr unsigned bytes = 256;
    auto& chunk = arch::blockShared<Chunk, GroupsKernel>();
    if (thisBlock().rank() != 0) return;
    for (unsigned i = 0; i < chunks; ++i) {
      for (unsigned k = 0; k < bytes; ++k) chunk.bytes[i * bytes + k] = static_cast<std::uint8_t>(i + 1);
      bulkFence();
      // Two stores make one group.
      bulkStore(dst + i * bytes, &chunk.bytes[i * bytes], bytes / 2);
      bulkStore(dst + i * bytes + bytes / 2, &chunk.bytes[i * bytes + bytes / 2], bytes / 2);
      bulkCommit();
      bulkWait<1>();
      for (unsigned before = 0; before < i; ++before) {
        if (dst[before * bytes] != before + 1 || dst[before * bytes + bytes - 1] != before + 1) ++*missing;
      }
    }
    bulkWait();
  }
};

// Rounds of a ring of two ranks: each stores into its peer's memory, signals, waits, and checks what has come.
struct ExchangeKernel {
  MSCCLPP_DEVICE void operator()(std::uint8_t* inbox, std::uint8_t* peerInbox,
                                 MemoryDevice2DeviceSemaphoreDeviceHandle semaphore, unsigned rank, unsigned rounds,
                                 unsigned* wrong) const {
    auto const block = thisBlock();
    auto& chunk = arch::blockShared<Chunk, ExchangeKernel>();
    for (unsigned round = 0; round < rounds; ++round) {
      auto* const half = inbox + round % 2 * chunkBytes;
      for (unsigned i = block.rank(); i < chunkBytes; i += block.size()) chunk.bytes[i] = valueOf(rank, round, i);
      bulkFence();
      block.sync();
      if (block.rank() == 0) {
        bulkStore(peerInbox + round % 2 * chunkBytes, &chunk, chunkBytes);
        bulkCommit();
        bulkWait();
        semaphore.signal();
        semaphore.wait();
      }
      block.sync();
      for (unsigned i = block.rank(); i < chunkBytes; i += block.size()) {
        if (half[i] != valueOf(1 - rank, round, i)) ++wrong[block.rank()];
      }
    }
  }

 private:
  MSCCLPP_DEVICE static std::uint8_t valueOf(unsigned rank, unsigned round, unsigned i) {
    return static_cast<std::uint8_t>(i + round * 13 + rank * 101);
  }
};

// All threads arrive, phase after phase; in each they read what another one wrote before it arrived.
struct ArriveKernel {
  MSCCLPP_DEVICE void operator()(unsigned* wrong, unsigned phases, layout::Watch* watch) const {
    auto const block = thisBlock();
    auto& values = arch::blockShared<Values, ArriveKernel>();
    auto& barrier = arch::blockShared<BulkBarrier, ArriveKernel>();
    if (block.rank() == 0) barrier.init(block.size());
    block.sync();
    for (unsigned phase = 0; phase < phases; ++phase) {
      values.of[phase % 2][block.rank()] = phase;
      barrier.arrive();
      barrier.wait(watch, phase % 2);
      if (values.of[phase % 2][(block.rank() + 1) % block.size()] != phase) ++wrong[block.rank()];
    }
    block.sync();
    if (block.rank() == 0) barrier.invalidate();
  }

 private:
  struct Values {
    unsigned of[2][64];
  };
};

// Each thread copies a chunk, of which so many bytes are there, and reads the next thread's.
struct ChunksKernel {
  MSCCLPP_DEVICE void operator()(std::uint8_t* dst, std::uint8_t const* src, layout::Watch* watch) const {
    auto const block = thisBlock();
    auto& chunk = arch::blockShared<Chunk, ChunksKernel>();
    auto& barrier = arch::blockShared<BulkBarrier, ChunksKernel>();
    for (unsigned i = block.rank(); i < chunkBytes; i += block.size()) chunk.bytes[i] = 0xdd;
    if (block.rank() == 0) barrier.init(block.size());
    block.sync();
    auto const own = block.rank() * 16;
    copyChunk(&chunk.bytes[own], src + own, block.rank() % 9 * 2);
    barrier.arriveBehindCopies();
    barrier.wait(watch, 0);
    auto const next = (block.rank() + 1) % block.size() * 16;
    for (unsigned i = 0; i < 16; ++i) dst[next + i] = chunk.bytes[next + i];
  }
};

}  // namespace

TEST_CASE("a store and a load move any multiple of 16 bytes, and nothing beside") {
  if (!canRun(1)) return;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    forEachRank(1,
                [](Rank& rank) {
                  if (!canCopy(rank)) return;
                  auto const source = randomInput<std::uint8_t>(3, 0, chunkBytes + 64);
                  GpuBuffer<std::uint8_t> src(rank.device, source.size());
                  GpuBuffer<std::uint8_t> dst(rank.device, source.size());
                  copyToDevice(src, std::span<std::uint8_t const>(source));
                  for (unsigned bytes : {16u, 48u, 1024u, chunkBytes}) {
                    for (std::size_t offset : {0, 16, 48}) {
                      CAPTURE(bytes);
                      CAPTURE(offset);
                      auto const place = static_cast<std::ptrdiff_t>(offset);
                      std::vector<std::uint8_t> expected(source.size(), 0xee);
                      dst.fill(0xee);
                      launch(rank.stream, {.blocks = 1, .threads = 64}, StoreKernel{}, dst.data() + offset, bytes);
                      rank.synchronize();
                      for (unsigned i = 0; i < bytes; ++i) expected[offset + i] = static_cast<std::uint8_t>(i * 7 + 3);
                      CHECK(copyToHost(dst) == expected);

                      dst.fill(0xee);
                      launch(rank.stream, {.blocks = 1, .threads = 64}, LoadKernel{}, dst.data(),
                             static_cast<std::uint8_t const*>(src.data() + offset), bytes, rank.communicator.watch());
                      rank.synchronize();
                      std::fill(expected.begin(), expected.end(), 0xee);
                      std::copy_n(source.begin() + place, bytes, expected.begin());
                      CHECK(copyToHost(dst) == expected);
                    }
                  }
                },
                {.seed = seed});
  }
}

TEST_CASE("loads and stores overlap through two buffers") {
  if (!canRun(1)) return;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    forEachRank(1,
                [](Rank& rank) {
                  if (!canCopy(rank)) return;
                  constexpr unsigned chunks = 9;
                  auto const source = randomInput<std::uint8_t>(4, 0, std::size_t{chunks} * chunkBytes);
                  GpuBuffer<std::uint8_t> src(rank.device, source.size());
                  GpuBuffer<std::uint8_t> dst(rank.device, source.size());
                  copyToDevice(src, std::span<std::uint8_t const>(source));
                  launch(rank.stream, {.blocks = 1, .threads = 32}, PipelineKernel{}, dst.data(),
                         static_cast<std::uint8_t const*>(src.data()), chunks, rank.communicator.watch());
                  rank.synchronize();
                  CHECK(copyToHost(dst) == source);
                },
                {.seed = seed});
  }
}

TEST_CASE("groups of stores end in order") {
  if (!canRun(1)) return;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    forEachRank(1,
                [](Rank& rank) {
                  if (!canCopy(rank)) return;
                  GpuBuffer<std::uint8_t> dst(rank.device, chunkBytes);
                  GpuBuffer<unsigned> missing(rank.device, 1);
                  launch(rank.stream, {.blocks = 1, .threads = 32}, GroupsKernel{}, dst.data(), 8u, missing.data());
                  rank.synchronize();
                  CHECK(copyToHost(missing)[0] == 0);
                  auto const bytes = copyToHost(dst);
                  for (unsigned i = 0; i < chunkBytes; ++i) REQUIRE(bytes[i] == i / 256 + 1);
                },
                {.seed = seed});
  }
}

TEST_CASE("what is stored into a peer's memory is there when the signal is") {
  if (!canRun(2)) return;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    forEachRank(2,
                [](Rank& rank) {
                  if (!canCopy(rank)) return;
                  int const peer = 1 - rank.rank;
                  GpuBuffer<std::uint8_t> inbox(rank.device, std::size_t{2} * chunkBytes);
                  GpuBuffer<unsigned> wrong(rank.device, 64);
                  auto const all =
                      rank.communicator.exchangeMemory(rank.communicator.registerMemory(inbox.data(), inbox.bytes()));
                  auto const semaphore = rank.communicator.buildSemaphore(peer);
                  launch(rank.stream, {.blocks = 1, .threads = 64}, ExchangeKernel{}, inbox.data(),
                         reinterpret_cast<std::uint8_t*>(all[static_cast<std::size_t>(peer)].data()),
                         semaphore.deviceHandle(), static_cast<unsigned>(rank.rank), 6u, wrong.data());
                  rank.synchronize();
                  CHECK(copyToHost(wrong) == std::vector<unsigned>(64, 0));
                },
                {.seed = seed});
  }
}

TEST_CASE("a barrier's phases follow each other") {
  if (!canRun(1)) return;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    forEachRank(1,
                [](Rank& rank) {
                  if (!canCopy(rank)) return;
                  GpuBuffer<unsigned> wrong(rank.device, 64);
                  launch(rank.stream, {.blocks = 1, .threads = 64}, ArriveKernel{}, wrong.data(), 7u,
                         rank.communicator.watch());
                  rank.synchronize();
                  CHECK(copyToHost(wrong) == std::vector<unsigned>(64, 0));
                },
                {.seed = seed, .preemption = 0.2});
  }
}

TEST_CASE("chunks have the bytes of their source, zeros behind them, and are there once all have arrived") {
  if (!canRun(1)) return;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    forEachRank(1,
                [](Rank& rank) {
                  if (!canCopy(rank)) return;
                  constexpr unsigned threads = 64;
                  auto expected = randomInput<std::uint8_t>(5, 0, std::size_t{threads} * 16);
                  GpuBuffer<std::uint8_t> src(rank.device, expected.size());
                  GpuBuffer<std::uint8_t> dst(rank.device, expected.size());
                  copyToDevice(src, std::span<std::uint8_t const>(expected));
                  launch(rank.stream, {.blocks = 1, .threads = threads}, ChunksKernel{}, dst.data(),
                         static_cast<std::uint8_t const*>(src.data()), rank.communicator.watch());
                  rank.synchronize();
                  for (std::size_t i = 0; i < expected.size(); ++i) {
                    if (i % 16 >= i / 16 % 9 * 2) expected[i] = 0;
                  }
                  CHECK(copyToHost(dst) == expected);
                },
                {.seed = seed, .preemption = 0.2});
  }
}
