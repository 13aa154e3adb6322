// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is kept between calls: workspaces that grow, streams and communicators beside each other, bounds, windows.
#include "mscclpp/collectives/contexts.hpp"

#include <memory>
#include <vector>

#include "collectives/allreduce.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/launch/launch.hpp"

using namespace mscclpp_test;

TEST_CASE("a workspace grows by being replaced, and not when a smaller call follows") {
  forEachRankOn(DeviceKind::sim, 4, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    auto const run = [&](char const* name, std::size_t count, int threads) {
      Sums<float, Sum> sums(communicator, count, count);
      auto call = sums.call();
      call.threads = threads;
      algorithms.at(Collective::allReduce, name)->execute(communicator, stream, call);
      communicator.synchronize(stream);
      CHECK(sums.wrong() == 0);
      communicator.bootstrap()->barrier();
      return contextCounts(communicator);
    };
    auto const first = run("oneshot_ll16", 100, 64);
    CHECK(first.teams == 1);
    CHECK(first.workspaceBytes > 0);
    CHECK(run("oneshot_ll16", 5000, 64) == first);
    CHECK(run("oneshot_ll16", 100, 32) == first);
    auto const wider = run("oneshot_ll16", 100, 256);
    CHECK(wider.workspaceBytes > first.workspaceBytes);
    auto const other = run("twoshot_memory", 100, 32);
    CHECK(other.workspaceBytes > wider.workspaceBytes);
    CHECK(other.teams == 1);
    CHECK(other.retiredTeams == 0);  // no graph needs them
    CHECK(run("oneshot_ll16", 100, 64) == other);
    CHECK(run("twoshot_memory", 100, 32) == other);
  });
}

TEST_CASE("streams and communicators work beside each other, whatever the schedule") {
  auto const body = [](Communicator& communicator) {
    Communicator second(communicator.bootstrap(), communicator.device());
    auto const algorithms = AlgorithmCollection::defaults();
    std::vector<Stream> streams;
    std::vector<std::unique_ptr<Sums<float, Sum>>> work;
    for (int i = 0; i < 6; ++i) streams.emplace_back(communicator.device());
    auto const& of = [&](int i) -> Communicator& { return i % 2 == 0 ? communicator : second; };
    // Nothing is waited for in between: all of it may run at once.
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 6; ++i) {
        work.push_back(std::make_unique<Sums<float, Sum>>(communicator, 200 + 50 * static_cast<std::size_t>(i), 7 * i));
        algorithms.execute(Collective::allReduce, of(i), streams[static_cast<std::size_t>(i)], work.back()->call());
      }
    }
    for (int i = 0; i < 6; ++i) of(i).synchronize(streams[static_cast<std::size_t>(i)]);
    for (auto const& one : work) CHECK(one->wrong() == 0);
    CHECK(contextCounts(communicator).teams == 3);
    CHECK(contextCounts(second).teams == 3);
    communicator.bootstrap()->barrier();
  };
  for (std::uint64_t seed = 1; seed <= 8; ++seed) forEachRankOn(DeviceKind::sim, 3, body, seed);
}

TEST_CASE("beyond the bound the least recently used team goes") {
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    checkContains(errorOf([&] { setContextLimits(communicator, {.teams = 0}); }, ErrorCode::invalidUsage),
                  "there must be at least 1");
    setContextLimits(communicator, {.teams = 2, .blocks = communicator.rank() == 0 ? 1u : 3u});
    CHECK(World::of(communicator).maxBlocks == 1);  // the fewest of any rank
    checkContains(errorOf([&] { setContextLimits(communicator, {.teams = 2}); }, ErrorCode::invalidUsage), "0 blocks");
    auto const algorithms = AlgorithmCollection::defaults();
    std::vector<Stream> streams;
    std::vector<std::unique_ptr<Sums<float, Sum>>> work;
    for (int i = 0; i < 5; ++i) streams.emplace_back(communicator.device());
    for (int i : {0, 1, 2, 3, 4, 0, 4, 1, 0}) {
      work.push_back(std::make_unique<Sums<float, Sum>>(communicator, 300, 11));
      algorithms.execute(Collective::allReduce, communicator, streams[static_cast<std::size_t>(i)],
                         work.back()->call());
      CHECK(contextCounts(communicator).teams <= 2);
    }
    for (auto const& stream : streams) communicator.synchronize(stream);
    for (auto const& one : work) CHECK(one->wrong() == 0);
    CHECK(contextCounts(communicator).teams == 2);
    communicator.bootstrap()->barrier();
  });
}

namespace {

// All-gather by stores into the peers' output, as an algorithm that needs a window does it.
struct StoreToPeers {
  MSCCLPP_DEVICE void operator()(std::uint8_t const* in, std::size_t count, layout::WindowHandle const& window,
                                 std::uint64_t offset, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    teamBarrier(team, grid);
    for (int peer = 0; peer < window.size; ++peer) {
      auto* const to =
          reinterpret_cast<std::uint8_t*>(window.bases[peer] + offset) + static_cast<std::size_t>(window.rank) * count;
      for (std::size_t i = grid.rank(); i < count; i += grid.size()) {
        if (to + i != in + i) to[i] = in[i];
      }
    }
    teamBarrier(team, grid);
  }
};

void startStoreToPeers(KernelCall const& call) {
  launch(call.stream, call.shape, StoreToPeers{}, static_cast<std::uint8_t const*>(call.in), call.count,
         *call.outWindow, call.outOffset, DeviceTeam(call.team));
}

void addStoreToPeers() {
  KernelTable::instance().add(
      {DeviceKind::sim, Collective::allGather, "test_direct"},
      {.start = &startStoreToPeers,
       .requirement = [](std::uint32_t, std::uint32_t blocks,
                         std::uint32_t) { return layout::WorkspaceRequirement{.blocks = blocks}; },
       .shape = [](std::uint32_t, std::uint64_t,
                   std::uint32_t maxBlocks) { return LaunchShape{.blocks = std::min(maxBlocks, 2u), .threads = 32}; },
       .outputWindow = true});
}

struct Gathered {
  Gathered(Communicator const& communicator, std::size_t n, std::size_t offset = 0)
      : out(communicator.device(), n * static_cast<std::size_t>(communicator.size()) + offset),
        start(offset),
        count(n) {
    std::vector<std::uint8_t> mine(n, static_cast<std::uint8_t>(communicator.rank() + 1));
    copyToDevice(out, std::span<std::uint8_t const>(mine), start + n * static_cast<std::size_t>(communicator.rank()));
    for (int r = 0; r < communicator.size(); ++r) expected.insert(expected.end(), n, static_cast<std::uint8_t>(r + 1));
    rank = static_cast<std::size_t>(communicator.rank());
  }
  CollectiveCall call() const {
    return {.in = out.data() + start + rank * count,
            .out = out.data() + start,
            .inBytes = count,
            .outBytes = out.size() - start,
            .symmetric = true};
  }
  bool right() const {
    auto all = copyToHost(out);
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(start));
    return all == expected;
  }

  GpuBuffer<std::uint8_t> out;
  std::size_t start;
  std::size_t count;
  std::size_t rank;
  std::vector<std::uint8_t> expected;
};

}  // namespace

TEST_CASE("windows of symmetric buffers are kept, bounded, and go with their buffers") {
  addStoreToPeers();
  forEachRankOn(DeviceKind::sim, 3, [](Communicator& communicator) {
    auto const algorithm = AlgorithmCollection::defaults().at(Collective::allGather, "test_direct");
    setContextLimits(communicator, {.windows = 2});
    Stream stream(communicator.device());
    auto const run = [&](Gathered const& buffers) {
      algorithm->execute(communicator, stream, buffers.call());
      communicator.synchronize(stream);
      communicator.bootstrap()->barrier();
      CHECK(buffers.right());
      return contextCounts(communicator).windows;
    };
    {
      Gathered const first(communicator, 100);
      Gathered const second(communicator, 64, 128);
      CHECK(run(first) == 1);
      CHECK(run(first) == 1);
      CHECK(run(second) == 2);
      CHECK(run(Gathered(communicator, 10)) == 2);
      CHECK(run(first) == 2);
      communicator.bootstrap()->barrier();
    }
    // Those are gone, and so are their windows, also where new memory takes an old address.
    for (std::size_t n : {50, 60, 70, 80}) CHECK(run(Gathered(communicator, n)) == 1);
    releaseContexts(communicator);
    CHECK(contextCounts(communicator).windows == 0);
  });
}

TEST_CASE("a window is refused where buffers are not alike") {
  addStoreToPeers();
  forEachRankOn(DeviceKind::sim, 2, [](Communicator& communicator) {
    auto const algorithms = AlgorithmCollection::defaults();
    auto const algorithm = algorithms.at(Collective::allGather, "test_direct");
    Stream stream(communicator.device());
    Gathered const good(communicator, 16);
    auto call = good.call();
    call.symmetric = false;
    checkContains(errorOf([&] { algorithm->execute(communicator, stream, call); }, ErrorCode::invalidUsage),
                  "set `symmetric`");
    call = good.call();
    call.outBytes = 64;
    call.inBytes = 32;
    GpuBuffer<std::uint8_t> apart(communicator.device(), 32);
    call.in = apart.data();
    checkContains(errorOf([&] { algorithm->execute(communicator, stream, call); }, ErrorCode::invalidUsage),
                  "ends 32 bytes behind its allocation of 32 bytes");
    Gathered const astray(communicator, 16, communicator.rank() == 0 ? 0 : 8);
    checkContains(errorOf([&] { algorithm->execute(communicator, stream, astray.call()); }, ErrorCode::invalidUsage),
                  "rank 0's is 0 bytes from the start and rank 1's 8 bytes");
    communicator.bootstrap()->barrier();
  });
}
