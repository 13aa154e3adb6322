// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that join a round of tile flags by single threads, as those of CUTLASS do, and one behind them that ends it.
#include "mscclpp/device/tiles/joined_round.hpp"

#include <string>

#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "mscclpp/layout/window_handle.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

MSCCLPP_HOST_DEVICE constexpr unsigned valueOf(unsigned number, int rank, unsigned block) {
  return number * 1000 + static_cast<unsigned>(rank) * 10 + block;
}

// Each block writes a value to each rank, in the slot of source and block, and arrives at the source's tile there.
struct Join {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags, layout::WindowHandle const& window, unsigned number,
                                 unsigned* wentOn) const {
    auto const grid = thisGrid();
    auto const block = grid.blockRank();
    if (thisBlock().rank() == 1) JoinedRound::tell(flags, block, grid.blockCount());
    if (thisBlock().rank() != 0) return;
    JoinedRound round;
    for (int rank = 0; rank < flags.size; ++rank) {
      round.join(flags);
      round.ready(flags, rank);
      auto* const slots = reinterpret_cast<unsigned*>(window.bases[rank]);
      slots[static_cast<unsigned>(flags.rank) * grid.blockCount() + block] = valueOf(number, flags.rank, block);
      round.arrive(flags, rank, static_cast<unsigned>(flags.rank));
    }
    fetchAdd<Order::relaxed, Scope::device>(wentOn, 1u);
  }
};

// Beside Join: sees what comes from all ranks.
MSCCLPP_DEVICE void compare(DeviceTileFlags const& flags, layout::WindowHandle const& window, unsigned number,
                            unsigned blocks, int source, unsigned* wrong) {
  auto const* const slots = reinterpret_cast<unsigned const*>(window.bases[flags.rank]);
  for (unsigned block = 0; block < blocks; ++block) {
    auto const seen = slots[static_cast<unsigned>(source) * blocks + block];
    if (seen != valueOf(number, source, block)) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
  }
}

struct JoinAndAwait {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags, layout::WindowHandle const& window, unsigned number,
                                 unsigned blocks, unsigned* wrong) const {
    if (thisBlock().rank() != 0) return;
    JoinedRound round;
    round.join(flags);
    for (int source = 0; source < flags.size; ++source) {
      round.await(flags, static_cast<unsigned>(source), blocks);
      compare(flags, window, number, blocks, source, wrong);
    }
  }
};

// A launch that is refused.
struct Refused {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags) const {
    auto const round = flags.begin(thisGrid());
    if (thisBlock().rank() == 0) round.arrive(flags.size, 0);
    syncWhole(thisBlock());
    round.end();
  }
};

}  // namespace

TEST_CASE("kernels join a round that another ends") {
  for (int const ranks : {1, 2, 5}) {
    if (!canRun(ranks)) continue;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      CAPTURE(ranks);
      CAPTURE(seed);
      forEachRank(ranks,
                  [&](Rank& rank) {
                    constexpr unsigned blocks = 2;
                    TileFlags const flags(rank.communicator, {.tiles = static_cast<std::uint32_t>(ranks), .blocks = 3});
                    GpuBuffer<unsigned> const slots(rank.device, static_cast<std::size_t>(ranks) * blocks);
                    GpuBuffer<unsigned> const wentOn(rank.device, 1), wrong(rank.device, 1);
                    MemoryWindow const window(rank.communicator, slots.data(), slots.bytes());
                    rank.meet();
                    for (unsigned number = 1; number <= 5; ++number) {
                      rank.pace();
                      launch(rank.stream, {.blocks = blocks, .threads = 32}, Join{}, flags.deviceHandle(),
                             window.deviceHandle(), number, wentOn.data());
                      rank.pace();
                      launch(rank.stream, {.blocks = 1, .threads = 32}, JoinAndAwait{}, flags.deviceHandle(),
                             window.deviceHandle(), number, blocks, wrong.data());
                      rank.pace();
                      launch(rank.stream, {.blocks = 1 + number % 3, .threads = 32}, EndRound{}, flags.deviceHandle());
                    }
                    rank.synchronize();
                    CHECK(copyToHost(wrong)[0] == 0);
                    CHECK(copyToHost(wentOn)[0] == 5 * blocks);
                  },
                  {.seed = seed});
    }
  }
}

TEST_CASE("a kernel that joins astray says so, arrives nowhere and goes on to its end") {
  if (!canRun(1)) return;
  forEachRank(1, [](Rank& rank) {
    auto const errorOf = [&] {
      try {
        rank.communicator.synchronize(rank.stream);
      } catch (Error const& error) {
        return std::string(error.what());
      }
      return std::string("nothing");
    };
    TileFlags const flags(rank.communicator, {.tiles = 1, .blocks = 1});
    GpuBuffer<unsigned> const slots(rank.device, 1), wentOn(rank.device, 1);
    MemoryWindow const window(rank.communicator, slots.data(), slots.bytes());
    launch(rank.stream, {.blocks = 1, .threads = 32}, Refused{}, flags.deviceHandle());
    CHECK(errorOf().find("refused rank 1 of tile flags") != std::string::npos);
    launch(rank.stream, {.blocks = 1, .threads = 32}, Join{}, flags.deviceHandle(), window.deviceHandle(), 1u,
           wentOn.data());
    CHECK(errorOf().find("given up before") != std::string::npos);
    CHECK(copyToHost(wentOn)[0] == 1);
  });
}
