// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clusters: blocks that run together and meet by hardware.
#include <string>
#include <vector>

#include "mscclpp/algorithms/collective/allgather.hpp"
#include "mscclpp/algorithms/collective/reduce_scatter.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/tiles/flagged_words.hpp"
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

MSCCLPP_DEVICE void awaitWord(unsigned const* word, unsigned value) {
  poll(nullptr, {layout::WaitKind::gridBarrier, -1, 0, value}, [&](std::uint64_t& seen) {
    seen = load<Order::relaxed, Scope::device>(word);
    return seen == value;
  });
}

// The same by the barrier in two parts, of which the first waits for nobody: one thread comes to it last, once another
// has come between them.
struct PassOnInPartsKernel {
  MSCCLPP_DEVICE void operator()(unsigned* words, unsigned* flag, unsigned* wrong, unsigned times) const {
    auto const cluster = thisCluster();
    auto const before = (cluster.rank() + cluster.size() - 1) % cluster.size();
    for (unsigned i = 1; i <= times; ++i) {
      if (cluster.rank() == 0) awaitWord(flag, i);
      words[cluster.rank()] = cluster.rank() * 100 + i;
      arch::arriveAtCluster();
      if (cluster.rank() == 32) store<Order::relaxed, Scope::device>(flag, i);
      arch::awaitCluster();
      if (words[before] != before * 100 + i) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
      arch::arriveAtCluster();
      arch::awaitCluster();
    }
  }
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
    GpuBuffer<unsigned> const flag(rank.device, 1);
    for (unsigned cluster : {1u, 4u}) {
      flag.fill(0);
      launch(rank.stream, {.blocks = cluster, .threads = 64, .clusterBlocks = cluster}, PassOnInPartsKernel{},
             words.data(), flag.data(), wrong.data(), 20u);
      rank.synchronize();
    }
    launch(rank.stream, {.blocks = 4, .threads = 64, .clusterBlocks = 4}, SomeLeaveKernel{}, count.data());
    rank.synchronize();
    CHECK(copyToHost(wrong)[0] == 0);
    CHECK(copyToHost(count)[0] == 3 * 32);
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
