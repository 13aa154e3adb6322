// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The orders of device/tiles/tile_order.hpp in place of CUTLASS's persistent tile scheduler for Hopper.
//
//   GemmUniversal<Problem, Mainloop, Epilogue, mscclpp::OwnFirst<>>        the order is the tag
//   arguments.scheduler.rank = flags.rank();
//   arguments.scheduler.ranks = flags.size();
//
// A cluster of blocks takes each clusterCount()th position of the order of a TileGrid whose tiles are clusters of
// tiles; so each rank's share of the rows is whole clusters. OwnOnly makes the own rows alone. CUTLASS's own arguments
// for the order (max_swizzle_size, raster_order) say no more than how blocks are numbered.
//
// Cost: TileOrder::at() for each tile, in every warp.
#pragma once

#include <cstdint>

#include <cute/arch/cluster_sm90.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>

#include "mscclpp/cutlass/refusal.hpp"
#include "mscclpp/device/tiles/tile_order.hpp"

namespace mscclpp {

// Of a TileOrder, with a position of its own in every thread.
template <TileOrder Order, class TileShape, class ClusterShape>
class OrderedScheduler : public cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90 {
  using Base = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90;

 public:
  using Base::WorkTileInfo;

  // CUTLASS's, this rank, and over how many the rows are dealt out.
  struct Arguments : Base::Arguments {
    int rank = 0;
    int ranks = 1;
  };

  // What the kernel gets. `clusters`: tiles as large as a cluster's.
  struct Params : Base::Params {
    TileGrid clusters;
    int rank;
  };

  // Whether CUTLASS can, and `rank` is one of `ranks`. That shares are whole clusters is not asked here.
  static bool can_implement(Arguments const& arguments) {
    return Base::can_implement(arguments) && arguments.rank >= 0 && arguments.rank < arguments.ranks;
  }

  // On the host. Throws an Error, in words, where `rank` is none of `ranks` or a share is no whole clusters.
  template <class Problem, class... Rest>
  static Params to_underlying_arguments(Problem const& problem, TileShape tile, ClusterShape cluster,
                                        cutlass::KernelHardwareInfo const& hardware, Arguments const& arguments,
                                        Rest&&... rest) {
    if (!can_implement(arguments)) {
      detail::demand("TileOrder: rank " + std::to_string(arguments.rank) + " is none of " +
                     std::to_string(arguments.ranks) + "; set arguments.scheduler.rank and ranks");
    }
    detail::demand(detail::refuseRows("TileOrder", cute::get<0>(problem), arguments.ranks, rows));
    return {Base::to_underlying_arguments(problem, tile, cluster, hardware, arguments, static_cast<Rest&&>(rest)...),
            {static_cast<std::uint32_t>(cute::get<0>(problem)), static_cast<std::uint32_t>(cute::get<1>(problem)), rows,
             columns, arguments.ranks},
            arguments.rank};
  }

  OrderedScheduler() = default;
  CUTLASS_DEVICE explicit OrderedScheduler(Params const& params)
      : Base(params), clusters_(params.clusters), rank_(params.rank) {
    auto const at = cute::cluster_id_in_grid();
    position_ = at.x + cute::cluster_grid_dims().x * at.y;
  }

  // The tile at the position that has the number of its cluster.
  template <class Cluster>
  CUTLASS_DEVICE WorkTileInfo initial_work_tile_info(Cluster) const {
    return get_current_work();
  }

  // This block's tile of the cluster's position; an invalid one behind the last. Where a cluster is wider than what is
  // left, a block may get columns past the last.
  CUTLASS_DEVICE WorkTileInfo get_current_work() const {
    if (position_ >= Order::count(clusters_)) return WorkTileInfo::invalid_work_tile();
    auto const tile = Order::at(clusters_, rank_, position_);
    auto const block = cute::block_id_in_cluster();
    auto const down = static_cast<std::uint32_t>(tile.owner) * clusters_.down() + tile.down;
    return {static_cast<int>(down * height + block.x), static_cast<int>(tile.across * width + block.y), 0, true};
  }

  // So many turns further, without asking anybody: every thread counts for itself.
  CUTLASS_DEVICE void advance_to_next_work(std::uint32_t count = 1) { position_ += count * clusterCount(); }

  // Whether nothing is left so many turns from here.
  CUTLASS_DEVICE bool is_last_tile(WorkTileInfo&, std::uint32_t count = 1) const {
    return position_ + count * clusterCount() >= Order::count(clusters_);
  }

  // One turn further, and the tile there. No pipeline brings it, so nobody waits.
  template <class... Pipeline>
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo, Pipeline&&...) {
    advance_to_next_work();
    return cute::make_tuple(get_current_work(), true);
  }

 private:
  static constexpr std::uint32_t height = cute::size<0>(ClusterShape{});
  static constexpr std::uint32_t width = cute::size<1>(ClusterShape{});
  static constexpr std::uint32_t rows = height * cute::size<0>(TileShape{});
  static constexpr std::uint32_t columns = width * cute::size<1>(TileShape{});

  CUTLASS_DEVICE static std::uint32_t clusterCount() {
    auto const clusters = cute::cluster_grid_dims();
    return clusters.x * clusters.y;
  }

  TileGrid clusters_;
  int rank_;
  std::uint32_t position_;
};

}  // namespace mscclpp

// Every TileOrder is a tag of CUTLASS's for a scheduler.
namespace cutlass::gemm::kernel::detail {

template <class Order, class Arch, class TileShape, class ClusterShape, uint32_t Stages>
requires mscclpp::TileOrder<Order>
struct TileSchedulerSelector<Order, Arch, TileShape, ClusterShape, Stages> {
  using Scheduler = mscclpp::OrderedScheduler<Order, TileShape, ClusterShape>;
};

}  // namespace cutlass::gemm::kernel::detail
