// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of barriers: of ranks, of the blocks of a grid, of teams that overlap.
#include "mscclpp/device/barrier.hpp"

#include "check/harness.hpp"

using namespace check_test;

namespace {

// Two barriers back to back, of ranks {0, 1} and of {0, 1, 2}. Each team counts its own epochs; with one pad for both,
// the second team's arrival hides the first one's from a rank that has not looked yet.
template <Fault F>
struct OverlappingTeams {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    if (p.rank < 2) barrier(p, 2, 0, 7);
    barrier(p, 3, planted<F> ? 0 : 3, 1);
  }

 private:
  // Of ranks 0 to members - 1, with a word from each of them from word `pad` on.
  MSCCLPP_DEVICE static void barrier(Peers const& p, int members, unsigned pad, std::uint64_t epoch) {
    for (int r = 0; r < members; ++r) {
      store<Order::release, Scope::system>(p.flag(r, pad + static_cast<unsigned>(p.rank)), epoch);
    }
    for (int r = 0; r < members; ++r) {
      poll(nullptr, {layout::WaitKind::teamBarrier, r, pad, epoch}, [&](std::uint64_t& seen) {
        seen = load<Order::acquire, Scope::system>(p.flag(p.rank, pad + static_cast<unsigned>(r)));
        return seen == epoch;
      });
    }
  }
};

// A barrier of all ranks by relaxed words, between writes and reads; who is left out may still write.
template <Fault F>
struct BarrierLeavesOneOut {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const me = static_cast<unsigned>(p.rank);
    *p.data(0, me) = 1;  // <- left out
    for (int r = 0; r < p.size; ++r) store<Order::release, Scope::system>(p.flag(r, me), 1);
    for (int r = planted<F> ? 1 : 0; r < p.size; ++r) {
      waitUntil<Order::acquire>(p.flag(p.rank, static_cast<unsigned>(r)), 1);
    }
    for (int r = 0; r < p.size; ++r) expect(*p.data(0, static_cast<unsigned>(r)) == 1, "not written");  // <- reads all
  }
};

}  // namespace

TEST_CASE("two barriers of overlapping teams back to back on one pad") {
  checkKernel<OverlappingTeams>({FindingKind::deadLock, {}, "rank 1"}, {.ranks = 3, .threads = 1});
}

TEST_CASE("a barrier that leaves one rank out") {
  checkKernel<BarrierLeavesOneOut>({FindingKind::race, {"left out", "reads all"}}, {.ranks = 3, .threads = 1});
}

namespace {

// The first block opens a round: it sets the number of the round, then counts up a word on which the others wait. Each
// then arrives at the round's own counter. Who sees the counter but an old number waits at another one for ever.
template <Fault F>
struct NoFenceBeforeCounter {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto* const round = p.flag(0, 0);
    auto* const opened = p.flag(0, 1);
    if (arch::blockIndex() == 0) {
      store<Order::relaxed, Scope::device>(round, 3);
      if constexpr (!planted<F>) fence<Order::acquireRelease, Scope::device>();
      reduceAdd<Order::relaxed, Scope::device>(opened, 1);
    } else {
      waitUntil<Order::relaxed, Scope::device>(opened, 1);
      fence<Order::acquireRelease, Scope::device>();
    }
    auto* const arrived = p.flag(0, 8 + static_cast<unsigned>(load<Order::relaxed, Scope::device>(round)));
    reduceAdd<Order::relaxed, Scope::device>(arrived, 1);
    waitUntil<Order::relaxed, Scope::device>(arrived, arch::gridBlocks());  // <- round's counter
  }
};

enum class GridFault : std::uint8_t { none, generationReadLate, resetAfterOpening, noSync };

// The grid barrier of the library with one of its steps wrong.
template <GridFault G>
struct GridBarrier {
  MSCCLPP_DEVICE static void meet(Peers const& p) {
    if constexpr (G != GridFault::noSync) thisBlock().sync();
    if (thisBlock().rank() == 0) {
      auto* const arrivals = p.flag(0, 0);
      auto* const generation = p.flag(0, 1);
      std::uint64_t mine = 0;
      if constexpr (G != GridFault::generationReadLate) mine = load<Order::relaxed, Scope::device>(generation);
      bool const last = fetchAdd<Order::acquireRelease, Scope::device>(arrivals, 1) + 1 == arch::gridBlocks();
      if constexpr (G == GridFault::generationReadLate) mine = load<Order::relaxed, Scope::device>(generation);
      if (last) {
        if constexpr (G != GridFault::resetAfterOpening) store<Order::relaxed, Scope::device>(arrivals, 0);
        store<Order::release, Scope::device>(generation, mine + 1);
        if constexpr (G == GridFault::resetAfterOpening) store<Order::relaxed, Scope::device>(arrivals, 0);
      } else {
        waitUntil<Order::acquire, Scope::device>(generation, mine + 1);
      }
    }
    thisBlock().sync();
  }

  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const grid = thisGrid();
    for (unsigned round = 1; round <= 3; ++round) {
      *p.data(0, grid.rank()) = round;  // <- before the grid barrier
      meet(p);
      expect(*p.data(0, grid.size() - 1 - grid.rank()) == round, "not written");  // <- behind the grid barrier
      meet(p);
    }
  }
};

template <Fault F>
struct GenerationReadLate : GridBarrier<planted<F> ? GridFault::generationReadLate : GridFault::none> {};
template <Fault F>
struct ResetAfterOpening : GridBarrier<planted<F> ? GridFault::resetAfterOpening : GridFault::none> {};
template <Fault F>
struct NoSyncBeforeArrival : GridBarrier<planted<F> ? GridFault::noSync : GridFault::none> {};

Setup const fourBlocks{.ranks = 1, .blocks = 4, .threads = 2};

}  // namespace

TEST_CASE("no fence before a counter across blocks: the blocks diverge") {
  checkKernel<NoFenceBeforeCounter>({FindingKind::deadLock}, {.ranks = 1, .blocks = 2, .threads = 1});
}

TEST_CASE("a grid barrier that reads its generation after it has arrived") {
  checkKernel<GenerationReadLate>({FindingKind::deadLock}, fourBlocks);
}

TEST_CASE("a grid barrier that resets its counter after it has opened") {
  checkKernel<ResetAfterOpening>({FindingKind::deadLock}, fourBlocks);
}

TEST_CASE("a grid barrier that does not wait for its block's own threads") {
  checkKernel<NoSyncBeforeArrival>({FindingKind::race, {"before the grid barrier", "behind the grid barrier"}},
                                   fourBlocks);
}

namespace {

// Blocks of a cluster that meet in their own block only.
template <Fault F>
struct BlockBarrierInCluster {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const cluster = thisCluster();
    *p.data(0, cluster.rank()) = 1;  // <- before the cluster's barrier
    if constexpr (planted<F>) {
      cluster.block().sync();
    } else {
      cluster.sync();
    }
    auto const other = cluster.size() - 1 - cluster.rank();
    expect(*p.data(0, other) == 1, "not written");  // <- behind the cluster's barrier
  }
};

// One block of a cluster waits for what another does only behind their barrier.
template <Fault F>
struct WaitBeforeClusterBarrier {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const cluster = thisCluster();
    bool const waits = cluster.blockRank() == 1 && thisBlock().rank() == 0;
    if (planted<F> && waits) waitUntil<Order::acquire, Scope::device>(p.flag(0), 1);
    cluster.sync();
    if (cluster.rank() == 0) store<Order::release, Scope::device>(p.flag(0), 1);
    if (!planted<F> && waits) waitUntil<Order::acquire, Scope::device>(p.flag(0), 1);
  }
};

// A meeting in two parts, which orders nothing, where the barrier is meant.
template <Fault F>
struct MeetingInParts {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const cluster = thisCluster();
    if (cluster.rank() == 0) *p.data(0) = 1;  // <- ahead of the meeting
    if constexpr (planted<F>) {
      arch::arriveAtCluster();
      arch::awaitCluster();
    } else {
      cluster.sync();
    }
    if (cluster.blockRank() == 1) expect(*p.data(0) == 1, "not written");  // <- read behind the meeting
  }
};

Setup const oneCluster{.ranks = 1, .blocks = 2, .threads = 2, .clusterBlocks = 2};

}  // namespace

TEST_CASE("a block's barrier where the cluster's is meant") {
  checkKernel<BlockBarrierInCluster>(
      {FindingKind::race, {"before the cluster's barrier", "behind the cluster's barrier"}}, oneCluster);
}

TEST_CASE("a meeting of the cluster in two parts where its barrier is meant") {
  checkKernel<MeetingInParts>({FindingKind::race, {"ahead of the meeting", "read behind the meeting"}}, oneCluster);
}

TEST_CASE("a wait before the cluster's barrier for what comes behind it") {
  checkKernel<WaitBeforeClusterBarrier>({FindingKind::deadLock, {}, "the cluster's barrier (3 of 4 threads have come)"},
                                        oneCluster);
}

namespace {

// A device of one multiprocessor holds two blocks of 1024 threads.
template <Fault F>
struct GridTooLarge {
  void operator()(Rank& rank) const {
    Team const team(rank.communicator, {.blocks = 3});
    launch(rank.stream, {.blocks = planted<F> ? 3u : 2u, .threads = 1024}, Kernel{}, team.deviceHandle());
    rank.synchronize();
  }
  struct Kernel {
    MSCCLPP_DEVICE void operator()(DeviceTeam const& team) const { gridBarrier(team, thisGrid()); }
  };
};

// Blocks without work leave before the barrier that counts them.
template <Fault F>
struct BlockLeavesEarly {
  void operator()(Rank& rank) const {
    Team const team(rank.communicator, {.blocks = 3});
    launch(rank.stream, {.blocks = 3, .threads = 32}, Kernel{}, team.deviceHandle(), 64u);
    rank.synchronize();
  }
  struct Kernel {
    MSCCLPP_DEVICE void operator()(DeviceTeam const& team, unsigned count) const {
      if (planted<F> && arch::blockIndex() * thisBlock().size() >= count) return;
      gridBarrier(team, thisGrid());
    }
  };
};

// Half of the block's warps go another way; the barrier is told of all.
template <Fault F>
struct WrongBarrierCount {
  MSCCLPP_DEVICE void operator()(Peers const&) const {
    if (arch::threadIndex() < 64) arch::syncBarrier(1, planted<F> ? 96 : 64);
    arch::syncBlock();
  }
};

// The round's number is advanced by whoever gets there first, before all have read it.
template <Fault F>
struct EpochTooEarly {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const block = thisBlock();
    auto const epoch = load<Order::relaxed, Scope::device>(p.flag(p.rank, 100)) + 1;
    if constexpr (!planted<F>) block.sync();
    if (block.rank() == 0) store<Order::relaxed, Scope::device>(p.flag(p.rank, 100), epoch);
    store<Order::release, Scope::system>(p.flag(p.peer(), block.rank()), epoch);
    poll(nullptr, {layout::WaitKind::semaphore, p.peer(), block.rank(), epoch}, [&](std::uint64_t& seen) {
      seen = load<Order::acquire, Scope::system>(p.flag(p.rank, block.rank()));
      return seen == epoch;
    });
  }
};

}  // namespace

TEST_CASE("a grid barrier of more blocks than the device holds") {
  checkProgram<GridTooLarge>({FindingKind::gridNotResident},
                             {.ranks = 1, .machine = {.multiprocessors = 1}, .silentSchedules = 20});
}

TEST_CASE("blocks without work leave before the grid barrier") {
  checkProgram<BlockLeavesEarly>({FindingKind::deadLock}, {.ranks = 1});
}

TEST_CASE("a barrier that waits for more warps than come") {
  checkKernel<WrongBarrierCount>({FindingKind::deadLock}, {.ranks = 1, .threads = 128});
}

TEST_CASE("an epoch that is advanced before all threads have read it") {
  checkKernel<EpochTooEarly>({FindingKind::deadLock});
}

namespace {

// Every rank sends a token to every other and waits until all took it. One warp takes them, a lane for each sender; its
// last lane was meant for something else.
template <Fault F>
struct CombineOf32 {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const lane = thisWarp().rank();
    auto const me = static_cast<unsigned>(p.rank);
    for (auto r = lane; r < static_cast<unsigned>(p.size); r += 32) {
      store<Order::release, Scope::system>(p.flag(static_cast<int>(r), me), 1);
    }
    unsigned const takers = planted<F> ? 31 : 32;
    if (lane < takers && lane < static_cast<unsigned>(p.size)) {
      waitUntil<Order::acquire>(p.flag(p.rank, lane), 1);
      store<Order::release, Scope::system>(p.flag(static_cast<int>(lane), 64 + me), 1);
    }
    for (auto r = lane; r < static_cast<unsigned>(p.size); r += 32) {
      waitUntil<Order::acquire>(p.flag(p.rank, 64 + r), 1);
    }
  }
};

// Where each rank's part begins: a scan over the counts, by a block with fewer threads than there are ranks.
template <Fault F>
struct ScanTooSmall {
  struct Scan {
    unsigned begin[Peers::most];
  };
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto& scan = arch::blockShared<Scan, Scan>();
    auto const block = thisBlock();
    auto const ranks = static_cast<unsigned>(p.size);
    for (auto r = block.rank(); r < ranks; r += block.size()) scan.begin[r] = 0;
    block.sync();
    auto const last = planted<F> ? minimum(ranks, block.size()) : ranks;
    for (auto r = block.rank(); r < last; r += block.size()) scan.begin[r] = 3 * r;  // each rank sends three words
    block.sync();
    auto const me = static_cast<unsigned>(p.rank);
    if (block.rank() < 3) *p.data(0, scan.begin[me] + block.rank()) = me;  // <- combined output
  }
};

}  // namespace

TEST_CASE("a combine that dead-locks at 32 ranks") {
  checkKernel<CombineOf32>({FindingKind::deadLock}, {.ranks = 32, .silentSchedules = 20});
}

TEST_CASE("more ranks than the scan's grid: parts overlap") {
  checkKernel<ScanTooSmall>({FindingKind::race, {"combined output", "combined output"}},
                            {.ranks = 6, .threads = 4, .silentSchedules = 50});
}
