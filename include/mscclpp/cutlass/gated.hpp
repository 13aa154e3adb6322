// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A mainloop of CUTLASS that waits for the rows of A as they come from peers: the half of an all-gather ahead of a
// product that multiplies.
//
//   using Mainloop = cutlass::gemm::collective::CollectiveBuilder<...>::CollectiveOp;      // loads by TMA, for sm_90a
//   mscclpp::Gated<Mainloop>                      in its place
//   arguments.mainloop.ptr_A = gathered; ...      as ever
//   arguments.mainloop.await(flags.deviceHandle());
//
// Flag m of this rank stands for rows m * tileM to (m + 1) * tileM of A: of a TileGrid of the gathered rows with one
// column of tiles, where each rank's share is whole tiles. A tile is loaded once `arrivals` have come, one by default;
// the own rows have a flag as all others, so their mover arrives too.
//
// Who acts, and order. The lane that starts the loads waits, acquires and then fences (bulkFence), once for each tile
// of another row than the one before. The kernel joins its round (device/tiles/joined_round.hpp), so one of one's own
// ends it.
//
// Room. A kernel of CUTLASS fills the multiprocessors it takes. Whoever brings the rows runs beside it, so leave it
// some: arguments.hw_info.sm_count = all of them - the movers' blocks.
//
// Cost: a load where the rows have come, in the warp that loads ahead.
#pragma once

#include <cstdint>
#include <string>

#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>

#include "mscclpp/cutlass/refusal.hpp"
#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/tiles/joined_round.hpp"
#include "mscclpp/layout/tile_flags_handle.hpp"

namespace mscclpp {

template <class Mainloop>
class Gated : public Mainloop {
 public:
  // The mainloop's, which flags to await, and how many arrivals at each; await() sets both.
  struct Arguments : Mainloop::Arguments {
    layout::TileFlagsHandle flags{};
    std::uint32_t arrivals = 1;

    void await(layout::TileFlagsHandle const& tileFlags, std::uint32_t count = 1) {
      flags = tileFlags;
      arrivals = count;
    }
  };

  // What the kernel gets.
  struct Params : Mainloop::Params {
    DeviceTileFlags flags;
    std::uint32_t arrivals;
  };

  // Why there can be no such product, in words, or nothing: rows that are no whole tiles for each rank, or fewer flags
  // than tiles of rows. On the host, as the two below.
  template <class Problem>
  static std::string refusal(Problem const& problem, Arguments const& arguments) {
    auto const rows = std::int64_t{cute::get<0>(problem)};
    auto const words = detail::refuseFlags("Gated", arguments.flags, rows / tileRows);
    return words.empty() ? detail::refuseRows("Gated", rows, arguments.flags.size, tileRows) : words;
  }

  // For CUTLASS, before a launch: whether neither this nor the mainloop refuses.
  template <class Problem>
  static bool can_implement(Problem const& problem, Arguments const& arguments) {
    return refusal(problem, arguments).empty() && Mainloop::can_implement(problem, arguments);
  }

  // Throws an Error with what refusal() says, so nobody needs to have asked before.
  template <class Problem>
  static Params to_underlying_arguments(Problem const& problem, Arguments const& arguments, void* workspace) {
    detail::demand(refusal(problem, arguments));
    return {Mainloop::to_underlying_arguments(problem, arguments, workspace), arguments.flags, arguments.arrivals};
  }

  // By the warp that loads.
  template <class Inputs, class Coordinate, class... Rest>
  CUTLASS_DEVICE void load(Params const& params, typename Mainloop::MainloopPipeline pipeline,
                           typename Mainloop::PipelineState state, Inputs const& inputs, Coordinate const& tile,
                           Rest&&... rest) {
    int const row = cute::get<0>(tile);
    if (row != open_) {
      // The same lane is elected for the loads.
      if (cute::elect_one_sync()) {
        round_.join(params.flags);
        round_.await(params.flags, static_cast<unsigned>(row), params.arrivals);
        bulkFence();
      }
      __syncwarp();
      open_ = row;
    }
    Mainloop::load(params, pipeline, state, inputs, tile, static_cast<Rest&&>(rest)...);
  }

 private:
  static constexpr int tileRows = cute::size<0>(typename Mainloop::TileShape{});

  JoinedRound round_;
  int open_ = -1;
};

}  // namespace mscclpp
