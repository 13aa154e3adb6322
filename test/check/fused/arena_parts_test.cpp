// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles and their flags as parts of one arena over memory that was in use before: nothing to find, and a flag that goes
// out too early is found in parts too.
#include "mscclpp/host/fused/symmetric_arena.hpp"

#include <doctest/doctest.h>

#include "check/harness.hpp"
#include "check/sweep.hpp"
#include "mscclpp/device/symmetric_view.hpp"
#include "mscclpp/device/tiles/tile_flags.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "support/world.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

constexpr unsigned count = 8;

// Every rank gives every rank one tile.
template <bool Early>
struct GiveTiles {
  MSCCLPP_DEVICE void operator()(layout::WindowHandle const& window, DeviceTileFlags const& flags,
                                 std::uint32_t* sums) const {
    auto const round = flags.begin(thisGrid());
    auto const self = static_cast<unsigned>(window.rank);
    SymmetricView<std::uint32_t> const tiles(window, 0, count * static_cast<unsigned>(window.size));
    if (thisBlock().rank() == 0) {
      for (int to = 0; to < window.size; ++to) {
        round.ready(to);
        if (Early) round.arrive(to, self);
        for (unsigned i = 0; i < count; ++i) tiles.at(to)[self * count + i] = i;  // <- write
        if (!Early) round.arrive(to, self);
      }
      for (int from = 0; from < window.size; ++from) {
        auto const tile = static_cast<unsigned>(from);
        round.await(tile, 1);
        for (unsigned i = 0; i < count; ++i) *sums += tiles.at(window.rank)[tile * count + i];  // <- read
      }
    }
    syncWhole(thisBlock());
    round.end();
  }
};

template <bool Early>
void giveTiles(Rank& rank) {
  auto const size = static_cast<std::uint32_t>(rank.size);
  layout::TileFlagsSize const flagsSize{.tiles = size, .blocks = 1};
  std::size_t const tileBytes = std::size_t{count} * size * sizeof(std::uint32_t);
  auto const bytes = SymmetricArena::room({tileBytes, layout::TileFlagsLayout::make(size, flagsSize).total});
  GpuBuffer<std::byte> const memory(rank.device, 128 + bytes);
  memory.fill(0x77);
  SymmetricArena arena(rank.communicator, memory.data() + 128, bytes);
  auto const tiles = arena.take("tiles", tileBytes);
  TileFlags const flags(arena, flagsSize);
  GpuBuffer<std::uint32_t> const sums(rank.device, 1);
  rank.meet();
  for (int round = 0; round < 2; ++round) {
    launch(rank.stream, {.blocks = 1, .threads = 32}, GiveTiles<Early>{}, tiles.deviceHandle(), flags.deviceHandle(),
           sums.data());
  }
  rank.synchronize();
  if (!Early && copyToHost(sums)[0] != 2 * size * count * (count - 1) / 2) throw std::runtime_error("other sums");
}

}  // namespace

TEST_CASE("tiles and flags in an arena") {
  for (int ranks : {1, 2, 3}) sweep(ranks, [](Rank& rank, std::uint64_t) { giveTiles<false>(rank); });
}

TEST_CASE("a flag in an arena goes out before its tile") {
  checkFound({FindingKind::race, {"write", "read"}}, {}, giveTiles<true>, std::source_location::current().file_name());
  checkSilent({.silentSchedules = 50}, giveTiles<false>);
}
