// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An epilogue of CUTLASS that stores each tile of D with the rank that owns its rows, and tells it: the half of a
// product ahead of a reduce-scatter or an all-reduce that multiplies.
//
//   using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<...>::CollectiveOp;   // TMA stores, for sm_90a
//   mscclpp::PeerEpilogue<Epilogue, Ranks>                                         in its place
//   arguments.epilogue.to(window.deviceHandle(), flags.deviceHandle());            where D goes, in place of ptr_D, dD
//
// D lies by rows. There is no C: what is added once is the owner's to add.
//
// Tiles lie in Slots<ElementD> of the window, `offset` bytes from its start, for a TileGrid of the whole of D with
// CUTLASS's tiles: the owner awaits `Ranks` arrivals at a tile's number, and foldSlots() adds up. Each rank's share of
// the rows is whole tiles. Operations on D see an owner's rows as if they were all, numbered from 0.
//
// Who acts, and order. The first warp of the epilogue, which stores by TMA. It waits for ready() of an owner before its
// first tile for it. A tile's flag follows a full bulkWait(), one tile late, so that nobody stands still while stores
// are on their way; the last one's at the end. (CUTLASS's own wait at the end of a tile, tma_store_wait, tells that
// shared memory has been read, not that anything has arrived.) Pingpong kernels wait at each tile's end. The kernel
// tells all peers that it has begun the round, and joins it (device/tiles/joined_round.hpp), so one of one's own ends
// it.
//
// Cost: for each tile a wait for what has arrived long since, and an addition; 256 to 384 bytes of parameters a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>

#include "mscclpp/cutlass/refusal.hpp"
#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/tiles/joined_round.hpp"
#include "mscclpp/device/tiles/tile_order.hpp"
#include "mscclpp/layout/tile_flags_handle.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp {

template <class Epilogue, int Ranks>
class PeerEpilogue : public Epilogue {
  static_assert(Ranks >= 1 && Ranks <= 32, "PeerEpilogue: 1 to 32 ranks, of which a thread keeps one bit each");
  static_assert(cute::is_void_v<typename Epilogue::ElementC>,
                "PeerEpilogue: build the epilogue with ElementC = void; what is added once is the owner's to add");
  static_assert(cute::is_same_v<typename Epilogue::StrideD, cute::Stride<std::int64_t, cute::_1, std::int64_t>>,
                "PeerEpilogue: build the epilogue with D of layout::RowMajor, as slots are");

 public:
  // The epilogue's, of which ptr_D and dD are replaced, and what to() sets: where slots lie and which flags tell.
  struct Arguments : Epilogue::Arguments {
    layout::WindowHandle window{};
    layout::TileFlagsHandle flags{};
    std::uint64_t offset = 0;

    void to(layout::WindowHandle const& slots, layout::TileFlagsHandle const& tileFlags, std::uint64_t bytes = 0) {
      window = slots;
      flags = tileFlags;
      offset = bytes;
    }
  };

  // The epilogue's once for each owner of rows, and as a base those for this rank.
  struct Params : Epilogue::Params {
    typename Epilogue::Params of[Ranks];
    DeviceTileFlags flags;
    int down, across;  // tiles of a share
  };

  // Why there can be no such product, in words, or nothing: shares that are no whole tiles, batches, a window or flags
  // of other ranks, too small a window, too few flags. On the host, as the two below.
  template <class Problem>
  static std::string refusal(Problem const& problem, Arguments const& arguments) {
    auto const& window = arguments.window;
    auto const words = detail::refuseRows("PeerEpilogue", cute::get<0>(problem), Ranks, tileRows);
    if (!words.empty()) return words;
    if (cute::get<3>(cute::append<4>(problem, 1)) != 1) return "PeerEpilogue: one product at a time, no batches";
    if (window.size != Ranks || arguments.flags.size != Ranks || window.rank != arguments.flags.rank) {
      return "PeerEpilogue: compiled for " + std::to_string(Ranks) + " ranks, the window has " +
             std::to_string(window.size) + ", the flags " + std::to_string(arguments.flags.size) +
             "; both have to be of the same ranks";
    }
    auto const end = arguments.offset + Ranks * slotBytes(problem);
    if (end > window.bytes) {
      return "PeerEpilogue: the slots end at byte " + std::to_string(end) + " of a window of " +
             std::to_string(window.bytes);
    }
    return detail::refuseFlags("PeerEpilogue", arguments.flags, gridOf(problem).count());
  }

  // For CUTLASS, before a launch: whether neither this nor the epilogue refuses.
  template <class Problem>
  static bool can_implement(Problem const& problem, Arguments const& arguments) {
    return refusal(problem, arguments).empty() && Epilogue::can_implement(problem, arguments);
  }

  // Throws an Error with what refusal() says.
  template <class Problem>
  static Params to_underlying_arguments(Problem const& problem, Arguments const& arguments, void* workspace) {
    detail::demand(refusal(problem, arguments));
    auto const& window = arguments.window;
    auto const share = shareOf(problem);
    Params params{};
    typename Epilogue::Arguments one = arguments;
    one.dD = {cute::get<1>(problem), {}, 0};
    for (int owner = 0; owner < Ranks; ++owner) {
      auto* const slot =
          window.bases[owner] + arguments.offset + static_cast<unsigned>(window.rank) * slotBytes(problem);
      one.ptr_D = reinterpret_cast<typename Epilogue::ElementD*>(slot);
      params.of[owner] = Epilogue::to_underlying_arguments(share, one, workspace);
    }
    static_cast<typename Epilogue::Params&>(params) = params.of[window.rank];
    params.flags = arguments.flags;
    params.down = static_cast<int>(gridOf(problem).down());
    params.across = static_cast<int>(gridOf(problem).across());
    return params;
  }

  // By one thread of each block, first of all.
  CUTLASS_DEVICE static void prefetch_tma_descriptors(Params const& params) {
    for (auto const& one : params.of) Epilogue::prefetch_tma_descriptors(one);
    JoinedRound::tell(params.flags, blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z),
                      gridDim.x * gridDim.y * gridDim.z);
  }

  CUTLASS_DEVICE PeerEpilogue(Params const& params, typename Epilogue::TensorStorage& storage)
      : Epilogue(params, storage), params_(params) {}

  // By all threads of the epilogue, once a tile. The first warp waits: at the first tile of an owner for its ready(),
  // and for stores of the tile before, of which it then tells.
  template <class Problem, class TileShape, class Coordinate, class Accumulators, class Mma>
  CUTLASS_DEVICE auto store(typename Epilogue::LoadPipeline loads, typename Epilogue::LoadPipelineState loadState,
                            typename Epilogue::StorePipeline stores, typename Epilogue::StorePipelineState storeState,
                            Problem const& problem, TileShape const& shape, Coordinate const& tile,
                            Accumulators const& accumulators, Mma const& mma, int thread,
                            typename Epilogue::TensorStorage& storage, int part = -1) {
    bool const isStoring = thread < cutlass::NumThreadsPerWarp;
    int const row = cute::get<0>(tile);
    int const column = cute::get<1>(tile);
    int const owner = row / params_.down;
    if (isStoring && (ready_ >> owner & 1u) == 0) {
      if (thread == 0) {
        round_.join(params_.flags);
        round_.ready(params_.flags, owner);
      }
      __syncwarp();
      ready_ |= 1u << owner;
    }
    Epilogue there(params_.of[owner], storage);
    auto const states =
        there.store(loads, loadState, stores, storeState, shareOf(problem), shape,
                    cute::make_coord(row - owner * params_.down, column, cute::get<2>(tile), cute::get<3>(tile)),
                    accumulators, mma, thread, storage, part);
    if (isStoring) {
      constexpr int groups = Epilogue::get_store_pipe_increment(TileShape{});
      arriveAfter<groups>();
      // Tiles past the last column, of a cluster that is wider than the rest, have no flag.
      if (column < params_.across) pending_ = row * params_.across + column;
    }
    return states;
  }

  // By the same threads behind their last tile: waits until its stores have arrived, and tells of it.
  CUTLASS_DEVICE auto store_tail(typename Epilogue::LoadPipeline loads, typename Epilogue::LoadPipelineState loadState,
                                 typename Epilogue::StorePipeline stores,
                                 typename Epilogue::StorePipelineState storeState) {
    auto const states = Epilogue::store_tail(loads, loadState, stores, storeState);
    arriveAfter<0>();
    return states;
  }

 private:
  static constexpr int tileRows = cute::size<0>(typename Epilogue::CtaTileMNK{});
  static constexpr int tileColumns = cute::size<1>(typename Epilogue::CtaTileMNK{});
  static constexpr int none = -1;

  template <class Problem>
  static TileGrid gridOf(Problem const& problem) {
    return {static_cast<std::uint32_t>(cute::get<0>(problem)), static_cast<std::uint32_t>(cute::get<1>(problem)),
            tileRows, tileColumns, Ranks};
  }

  template <class Problem>
  static std::uint64_t slotBytes(Problem const& problem) {
    return std::uint64_t{gridOf(problem).shardRows()} * gridOf(problem).columns * sizeof(typename Epilogue::ElementD);
  }

  // The product whose rows are those of one rank.
  template <class Problem>
  CUTLASS_HOST_DEVICE static Problem shareOf(Problem problem) {
    cute::get<0>(problem) /= Ranks;
    return problem;
  }

  // By the storing warp: the tile ahead of the newest `Groups` of stores has arrived.
  template <unsigned Groups>
  CUTLASS_DEVICE void arriveAfter() {
    if (pending_ == none) return;
    bulkWait<Groups>();
    __syncwarp();  // whichever lane has stored
    if (cutlass::canonical_lane_idx() == 0) {
      round_.arrive(params_.flags, pending_ / (params_.down * params_.across), static_cast<unsigned>(pending_));
    }
    pending_ = none;
  }

  Params const& params_;
  JoinedRound round_;
  std::uint32_t ready_ = 0;  // owners, a bit for each, whose memory is free
  int pending_ = none;       // the tile whose stores are on their way; in the storing warp
};

}  // namespace mscclpp
