// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tile flags: rounds that begin at zero whatever came before, tickets, what is refused, what a report says; and whole
// fused kernels.
#include "mscclpp/device/tiles/tile_flags.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "mscclpp/host/tile_flags.hpp"
#include "support/fused.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

// Block b of every rank arrives (tile + 1) times at each tile of each rank; some tiles are left out in some rounds, and
// the arrivals at some are not awaited.
struct CountKernel {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags, unsigned launchNumber, unsigned peerBlocks,
                                 unsigned* wrong) const {
    auto const round = flags.begin(thisGrid());
    auto const tiles = flags.layout.tiles;
    if (round.number() != launchNumber) *wrong = 1;
    if (thisBlock().rank() == 0) {
      for (int rank = 0; rank < flags.size; ++rank) round.ready(rank);
      for (unsigned tile = 0; tile < tiles; ++tile) {
        if (isLeftOut(tile, launchNumber)) continue;
        for (unsigned i = 0; i <= tile; ++i) {
          for (int rank = 0; rank < flags.size; ++rank) round.arrive(rank, tile);
        }
      }
      for (unsigned tile = 0; tile < tiles; ++tile) {
        auto const arrivals = isLeftOut(tile, launchNumber) ? 0 : (tile + 1) * peerBlocks;
        if (tile % 3 == 1 && launchNumber % 2 == 0) continue;  // nobody waits for these
        if (round.await(tile, arrivals) != arrivals) *wrong = 3;
        auto const* const word = flags.counter(flags.rank, round.number(), tile);
        if (load<Order::relaxed, Scope::system>(word) != arrivals) *wrong = 2;  // what an earlier round has left
      }
    }
    thisBlock().sync();
    round.end();
  }

 private:
  MSCCLPP_DEVICE static bool isLeftOut(unsigned tile, unsigned launchNumber) { return (tile + launchNumber) % 4 == 0; }
};

// Every index is handed out once.
struct TicketKernel {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags, unsigned* takenBy, unsigned count) const {
    auto const round = flags.begin(thisGrid());
    auto const warp = thisWarp();
    for (auto next = round.ticket(warp); next < count; next = round.ticket(warp)) {
      if (warp.rank() == 0) fetchAdd<Order::relaxed, Scope::device>(takenBy + next, 1u);
    }
    thisBlock().sync();
    round.end();
  }
};

enum class Wrong { rank, lowRank, tile, awaitedTile, blocks };

struct WrongKernel {
  Wrong wrong;
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags) const {
    auto const round = flags.begin(thisGrid());
    if (thisBlock().rank() == 0) {
      if (wrong == Wrong::rank) round.arrive(flags.size, 0);
      if (wrong == Wrong::lowRank) round.ready(-1);
      if (wrong == Wrong::tile) round.arrive(0, flags.layout.tiles);
      if (wrong == Wrong::awaitedTile) round.await(flags.layout.tiles + 3, 1);
    }
    syncWhole(thisBlock());
    round.end();
  }
};

// Rank 0 waits for an arrival that nobody makes, or for rank 1 to begin.
struct LonelyKernel {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags, bool forTile) const {
    auto const round = flags.begin(thisGrid());
    if (thisBlock().rank() == 0 && forTile) round.await(2, 5);
    if (thisBlock().rank() == 0 && !forTile) round.ready(1);
    syncWhole(thisBlock());
    round.end();
  }
};

std::string errorOf(Rank const& rank) {
  try {
    rank.communicator.synchronize(rank.stream);
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing";
}

std::string refusalOf(Wrong wrong, unsigned blocks) {
  std::string text;
  forEachRank(1, [&](Rank& rank) {
    TileFlags const flags(rank.communicator, {.tiles = 7, .blocks = 2});
    launch(rank.stream, {.blocks = blocks, .threads = 32}, WrongKernel{wrong}, flags.deviceHandle());
    text = errorOf(rank);
    // And the flags are not used again.
    launch(rank.stream, {.blocks = 1, .threads = 32}, LonelyKernel{}, flags.deviceHandle(), false);
    CHECK(errorOf(rank) != "nothing");
  });
  return text;
}

bool holds(std::string const& text, std::string const& part) {
  bool const found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

}  // namespace

TEST_CASE("counters begin each round at zero, whatever grids and rounds came before") {
  for (int const ranks : {1, 2, 3, 8}) {
    if (!canRun(ranks)) continue;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      CAPTURE(ranks);
      CAPTURE(seed);
      forEachRank(ranks,
                  [&](Rank& rank) {
                    TileFlags const flags(rank.communicator, {.tiles = 37, .blocks = 4});
                    GpuBuffer<unsigned> const wrong(rank.device, 1);
                    rank.meet();
                    for (unsigned number = 1; number <= 6; ++number) {
                      auto const blocksOf = [&](int r) { return 1 + (static_cast<unsigned>(r) + number) % 4; };
                      unsigned peerBlocks = 0;
                      for (int r = 0; r < ranks; ++r) peerBlocks += blocksOf(r);
                      rank.pace();
                      launch(rank.stream, {.blocks = blocksOf(rank.rank), .threads = 32}, CountKernel{},
                             flags.deviceHandle(), number, peerBlocks, wrong.data());
                    }
                    rank.synchronize();
                    CHECK(copyToHost(wrong)[0] == 0);
                  },
                  {.seed = seed});
    }
  }
}

TEST_CASE("tickets count from zero in every round") {
  if (!canRun(2)) return;
  forEachRank(2, [](Rank& rank) {
    constexpr unsigned count = 41;
    TileFlags const flags(rank.communicator, {.tiles = 1, .blocks = 3});
    GpuBuffer<unsigned> const takenBy(rank.device, count);
    rank.meet();
    for (int i = 0; i < 4; ++i) {
      rank.pace();
      launch(rank.stream, {.blocks = 3, .threads = 64}, TicketKernel{}, flags.deviceHandle(), takenBy.data(), count);
    }
    rank.synchronize();
    CHECK(copyToHost(takenBy) == std::vector<unsigned>(count, 4));
  });
}

TEST_CASE("tile flags of some ranks") {
  if (!canRun(4)) return;
  forEachRank(4, [](Rank& rank) {
    std::vector<int> const members{3, 1};
    if (rank.rank % 2 == 0) return rank.communicator.bootstrap()->barrier();
    TileFlags const flags(rank.communicator, {.tiles = 5, .blocks = 1}, members);
    CHECK(flags.rank() == (rank.rank == 3 ? 0 : 1));
    CHECK(flags.size() == 2);
    GpuBuffer<unsigned> const wrong(rank.device, 1);
    launch(rank.stream, {.blocks = 1, .threads = 32}, CountKernel{}, flags.deviceHandle(), 1u, 2u, wrong.data());
    rank.communicator.synchronize(rank.stream);
    rank.communicator.bootstrap()->barrier();
    CHECK(copyToHost(wrong)[0] == 0);
  });
}

TEST_CASE("ranks, tiles and grids out of range are refused") {
  if (!canRun(1)) return;
  CHECK(
      holds(refusalOf(Wrong::rank, 1), "rank 0 block 0 thread 0 refused rank 1 of tile flags: they have ranks 0 to 0"));
  CHECK(holds(refusalOf(Wrong::lowRank, 1), "refused rank -1 of tile flags"));
  CHECK(holds(refusalOf(Wrong::tile, 2), "refused tile 7: the tile flags have tiles 0 to 6"));
  CHECK(holds(refusalOf(Wrong::awaitedTile, 1), "refused tile 10: the tile flags have tiles 0 to 6"));
  CHECK(holds(refusalOf(Wrong::blocks, 3), "refused a grid of 3 blocks: the tile flags were made for at most 2"));
}

TEST_CASE("members that do not ask for the same tile flags are told") {
  if (!canRun(2)) return;
  auto const textOf = [](layout::TileFlagsSize const& even, layout::TileFlagsSize const& odd) {
    std::string text;
    forEachRank(2, [&](Rank& rank) {
      std::string own;
      try {
        TileFlags const flags(rank.communicator, rank.rank == 0 ? even : odd);
      } catch (Error const& error) {
        own = error.what();
      }
      CHECK(own != "");
      if (rank.rank == 0) text = own;
    });
    return text;
  };
  CHECK(holds(textOf({.tiles = 4, .blocks = 2}, {.tiles = 5, .blocks = 2}),
              "rank 0 asks for 4 tiles and 2 blocks, rank 1 for 5 and 2"));
  CHECK(holds(textOf({.tiles = 4, .blocks = 2}, {.tiles = 4, .blocks = 1}), "rank 1 for 4 and 1"));
  CHECK(holds(textOf({.tiles = 0, .blocks = 2}, {.tiles = 0, .blocks = 2}), "TileFlags for 0 tiles"));
}

#if !defined(__CUDACC__)
// The simulated machine alone looks.
TEST_CASE("two kernels at once are refused") {
  forEachRank(1, [](Rank& rank) {
    TileFlags const flags(rank.communicator, {.tiles = 3, .blocks = 1});
    Stream const other(rank.device);
    launch(rank.stream, {.blocks = 1, .threads = 32}, LonelyKernel{}, flags.deviceHandle(), true);
    launch(other, {.blocks = 1, .threads = 32}, LonelyKernel{}, flags.deviceHandle(), true);
    other.synchronize();
    CHECK(holds(errorOf(rank), "refused to use a team or tile flags that another kernel is still using"));
  });
}

TEST_CASE("a wait in vain names rank, tile, arrivals and round") {
  auto const textOf = [](bool forTile) {
    try {
      forEachRank(2, [&](Rank& rank) {
        TileFlags const flags(rank.communicator, {.tiles = 3, .blocks = 1});
        if (rank.rank == 0) {
          launch(rank.stream, {.blocks = 1, .threads = 32}, LonelyKernel{}, flags.deviceHandle(), forTile);
        }
        rank.synchronize();
      });
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK(holds(textOf(true), "waits for arrivals at tile 2, expected 5, seen 0"));
  CHECK(holds(textOf(false), "waits for the begin of rank 1 of a round of tile flags, expected 1, seen 0"));
}
#endif

TEST_CASE_TEMPLATE("fused kernels", Bulk, std::false_type, std::true_type) {
  for (int const ranks : {1, 2, 4, 7}) {
    if (!canRun(ranks)) continue;
    CAPTURE(ranks);
    FusedCase test{.shape = {.ranks = ranks,
                             .rows = 41,
                             .inner = 16,
                             .columns = Bulk::value ? 24u : 27u,
                             .tileRows = 4,
                             .tileColumns = 8,
                             .bulkWrites = Bulk::value,
                             .bulkReads = Bulk::value},
                   .rounds = 3,
                   .threads = 64};
    forEachRank(ranks, [&](Rank& rank) {
      if (Bulk::value && !canBulkCopy(rank)) return;
      runGatherProduct(rank, test);
      auto byTicket = test;
      byTicket.byTicket = true;
      runGatherProduct(rank, byTicket);
      runProductScatter(rank, test);
      runProductSum(rank, test);
    });
  }
}
