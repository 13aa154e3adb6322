// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clusters: blocks that run together and meet by hardware.
#include <string>
#include <vector>

#include "mscclpp/algorithms/collective/allgather.hpp"
#include "mscclpp/algorithms/collective/reduce_scatter.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

// GPUs before compute capability 9.0 have none.
bool hasClusters([[maybe_unused]] Rank const& rank) {
#if defined(__CUDACC__)
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, rank.device.ordinal);
  return major >= 9;
#else
  return true;
#endif
}

struct NumberKernel {
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto const cluster = thisCluster();
    auto const me = thisGrid().rank();
    out[me * 4 + 0] = cluster.rank();
    out[me * 4 + 1] = cluster.size();
    out[me * 4 + 2] = cluster.blockRank();
    out[me * 4 + 3] = cluster.blockCount();
  }
};

// Each thread hands its number to the thread behind it in the cluster, again and again.
struct PassOnKernel {
  MSCCLPP_DEVICE void operator()(unsigned* words, unsigned* wrong, unsigned times) const {
    auto const cluster = thisCluster();
    auto* const mine = words + (thisGrid().rank() - cluster.rank());
    for (unsigned i = 0; i < times; ++i) {
      mine[cluster.rank()] = cluster.rank() * 100 + i;
      cluster.sync();
      auto const before = (cluster.rank() + cluster.size() - 1) % cluster.size();
      if (mine[before] != before * 100 + i) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
      cluster.sync();
    }
  }
};

// Each thread puts its number into the memory of all blocks, as 4 and as 8 bytes, again and again; in between there is
// no barrier, only the bytes that come. All of it several times in a kernel.
struct PutKernel {
  static constexpr unsigned threads = 64;
  struct Room {
    BulkBarrier come[2];
    std::uint64_t wide[2][8 * threads];
    float narrow[2][8 * threads];
  };
  MSCCLPP_DEVICE void operator()(unsigned* wrong, unsigned times) const {
    auto const cluster = thisCluster();
    auto& room = arch::blockShared<Room, Room>();
    bool const first = thisBlock().rank() == 0;
    for (unsigned call = 0; call < 3; ++call) {
      if (first) {
        for (auto& barrier : room.come) barrier.init(1);
      }
      arch::arriveAtCluster();
      arch::awaitCluster();
      for (unsigned i = 0; i < times; ++i) {
        auto const set = i % 2;
        auto& come = room.come[set];
        if (first) come.arriveExpect(cluster.size() * (sizeof room.wide[0][0] + sizeof room.narrow[0][0]));
        for (unsigned block = 0; block < cluster.blockCount(); ++block) {
          auto& there = *arch::ofClusterBlock(room, block);
          putCounted(there.wide[set][cluster.rank()], wideOf(cluster.rank(), call + i), there.come[set]);
          putCounted(there.narrow[set][cluster.rank()], narrowOf(cluster.rank(), call + i), there.come[set]);
        }
        come.wait(nullptr, i / 2 % 2);
        for (unsigned from = 0; from < cluster.size(); ++from) {
          bool const right =
              room.wide[set][from] == wideOf(from, call + i) && room.narrow[set][from] == narrowOf(from, call + i);
          if (!right) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
        }
      }
      thisBlock().sync();
      if (first) {
        for (auto& barrier : room.come) barrier.invalidate();
      }
    }
  }

 private:
  MSCCLPP_DEVICE static std::uint64_t wideOf(unsigned thread, unsigned i) {
    return std::uint64_t{thread} << 40 | (i * 1000 + 7);
  }
  MSCCLPP_DEVICE static float narrowOf(unsigned thread, unsigned i) { return static_cast<float>(thread * 100 + i); }
};

// Threads that have left are not waited for.
struct SomeLeaveKernel {
  MSCCLPP_DEVICE void operator()(unsigned* count) const {
    auto const cluster = thisCluster();
    if (cluster.blockRank() == 1 || thisBlock().rank() >= 32) return;
    for (int i = 0; i < 3; ++i) cluster.sync();
    fetchAdd<Order::relaxed, Scope::device>(count, 1u);
  }
};

// As examples/compose, the barrier between the collectives being the cluster's.
struct LayerKernel {
  MSCCLPP_DEVICE void operator()(float const* x, float* part, float* y, std::size_t n, DeviceTeam const& team) const {
    auto const cluster = thisCluster();
    auto const whole = n * static_cast<std::size_t>(team.size);
    ReduceScatter<OneExchange, PacketTransport<LL16>, Sum>{team}(cluster, View{x, whole}, View{part, n});
    gridBarrier(team, cluster);
    AllGather<OneExchange, PacketTransport<LL16>>{team}(cluster, View{part, n}, View{y, whole});
  }
};

}  // namespace

TEST_CASE("a cluster numbers its threads and blocks") {
  forEachRank(1, [&](Rank& rank) {
    if (!hasClusters(rank)) return;
    GpuBuffer<unsigned> const out(rank.device, 6 * 64 * 4);
    launch(rank.stream, {.blocks = 6, .threads = 64, .clusterBlocks = 3}, NumberKernel{}, out.data());
    rank.synchronize();
    auto const found = copyToHost(out);
    std::vector<unsigned> expected;
    for (unsigned block = 0; block < 6; ++block) {
      for (unsigned thread = 0; thread < 64; ++thread) {
        expected.insert(expected.end(), {block % 3 * 64 + thread, 192, block % 3, 3});
      }
    }
    CHECK(found == expected);
  });
}

TEST_CASE("its barrier orders memory, and counts who is left") {
  forEachRank(1, [&](Rank& rank) {
    if (!hasClusters(rank)) return;
    GpuBuffer<unsigned> const words(rank.device, 8 * 96), wrong(rank.device, 1), count(rank.device, 1);
    wrong.fill(0);
    count.fill(0);
    for (unsigned cluster : {1u, 2u, 4u, 8u}) {
      launch(rank.stream, {.blocks = 8, .threads = 96, .clusterBlocks = cluster}, PassOnKernel{}, words.data(),
             wrong.data(), 20u);
    }
    launch(rank.stream, {.blocks = 4, .threads = 64, .clusterBlocks = 4}, SomeLeaveKernel{}, count.data());
    rank.synchronize();
    CHECK(copyToHost(wrong)[0] == 0);
    CHECK(copyToHost(count)[0] == 3 * 32);
  });
}

TEST_CASE("what is put into the memory of other blocks is there once it is counted") {
  forEachRank(1, [&](Rank& rank) {
    if (!hasClusters(rank)) return;
    GpuBuffer<unsigned> const wrong(rank.device, 1);
    wrong.fill(0);
    for (unsigned cluster : {1u, 2u, 4u, 8u}) {
      launch(rank.stream, {.blocks = 8, .threads = PutKernel::threads, .clusterBlocks = cluster}, PutKernel{},
             wrong.data(), 7u);
    }
    rank.synchronize();
    CHECK(copyToHost(wrong)[0] == 0);
  });
}

TEST_CASE("collectives of one cluster, with its barrier between them") {
  constexpr std::size_t n = 1000;
  constexpr unsigned blocks = 4, threads = 128;
  int const ranks = 3;
  if (!canRun(ranks)) return;
  forEachRank(ranks, [&](Rank& rank) {
    if (!hasClusters(rank)) return;
    using Reduce = ReduceScatter<OneExchange, PacketTransport<LL16>, Sum>;
    Team const team(rank.communicator, Reduce::requirement(3, blocks, threads));
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(randomInput<float>(3, r, n * 3));
    GpuBuffer<float> const x(rank.device, n * 3), part(rank.device, n), y(rank.device, n * 3);
    copyToDevice(x, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
    rank.meet();
    for (int i = 0; i < 3; ++i) {
      launch(rank.stream, {.blocks = blocks, .threads = threads, .clusterBlocks = blocks}, LayerKernel{}, x.data(),
             part.data(), y.data(), n, team.deviceHandle());
      rank.pace();
    }
    rank.synchronize();
    CHECK(countDifferent(copyToHost(y), reduceInRankOrder<float, Sum>(inputs)) == 0);
  });
}

TEST_CASE("shapes that cannot be are refused") {
  forEachRank(1, [&](Rank& rank) {
    GpuBuffer<unsigned> const out(rank.device, 1);
    auto const refusal = [&](LaunchShape const& shape) {
      try {
        launch(rank.stream, shape, NumberKernel{}, out.data());
      } catch (Error const& error) {
        CHECK(error.code() == ErrorCode::invalidUsage);
        return std::string(error.what());
      }
      return std::string();
    };
    for (unsigned cluster : {0u, 9u, 4u}) {
      auto const text = refusal({.blocks = 6, .threads = 32, .clusterBlocks = cluster});
      CAPTURE(text);
      CHECK(text.find("6 blocks in clusters of " + std::to_string(cluster)) != std::string::npos);
    }
  });
}
