// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who works on a row of a matrix: the threads that hold its elements, and how they reduce over all of it.
//
//   WarpsPerRow<N>    N warps of a block; the block's threads are a multiple of 32 * N, and up to 15 rows are with a
//                     block where N is above 1
//   BlockPerRow       a block; its threads are a multiple of 32
//   ClusterPerRow     the blocks of a cluster (LaunchShape::clusterBlocks, compute capability 9.0): few long rows
//
// Each has a `Threads`, made by every thread of the blocks, of which all take part in each reduce() of their row: at
// the same place, as often. A reduction costs a barrier of the row's threads and two words of shared memory a warp.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/group_ops.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

template <class T>
struct RowPartials {
  T perWarp[2][32];
};
template <class T>
struct BlockPartial {
  T value[2];
};

// Of some warps of a block, each of which has a value of its own. Two sets in turn: who writes one again has passed the
// barrier of the other, which all reach with the reads of the one behind them.
template <class T, SyncGroup G, class Op>
MSCCLPP_DEVICE T reduceOverWarps(G const& group, T value, Op const& op, unsigned firstWarp, unsigned turn) {
  auto& shared = arch::blockShared<RowPartials<T>, RowPartials<T>>();
  auto const thread = arch::threadIndex();
  if (thread % arch::warpSize == 0) shared.perWarp[turn][thread / arch::warpSize] = value;
  syncWhole(group);
  T result = shared.perWarp[turn][firstWarp];
  for (unsigned warp = 1; warp < group.size() / arch::warpSize; ++warp) {
    result = op(result, shared.perWarp[turn][firstWarp + warp]);
  }
  return result;
}

MSCCLPP_DEVICE void requireWholeRows(layout::Watch* watch, unsigned threads, unsigned multiple) {
  require(threads % multiple == 0, watch, -1, std::uint64_t(layout::Misuse::blockThreads), roundUp(threads, multiple),
          threads);
}

}  // namespace impl

// rank(), size(): of the row's threads. row(), rows(): which of the rows of one pass over the grid it is, and how many
// there are. blockRank(), blockRow(): the same of the first thread of this block.
template <class T>
concept RowThreads = requires(T threads) {
  { threads.rank() } -> std::same_as<unsigned>;
  { threads.size() } -> std::same_as<unsigned>;
  { threads.row() } -> std::same_as<unsigned>;
  { threads.rows() } -> std::same_as<unsigned>;
  { threads.blockRank() } -> std::same_as<unsigned>;
  { threads.blockRow() } -> std::same_as<unsigned>;
  { threads.reduce(1.0f, Sum{}) } -> std::same_as<float>;
  threads.sync();
  { threads.sharedOf(threads, 0u) } -> std::same_as<T*>;
  threads.end();
};

template <unsigned Warps>
struct WarpsPerRow {
  static_assert(Warps >= 1 && Warps <= 32);
  static constexpr unsigned rowThreads = Warps * 32;
  // Rows that are with a block of so many threads.
  MSCCLPP_HOST_DEVICE static constexpr unsigned rowsOfBlock(unsigned threads) { return threads / rowThreads; }
  // Threads and cluster for rows of so many payloads of which a thread takes one at a time.
  static constexpr LaunchShape shape(std::uint64_t) { return {.threads = roundUp(256u, rowThreads)}; }

  template <BlockSet B>
  class Threads {
   public:
    MSCCLPP_DEVICE Threads(B const& blocks, layout::Watch* watch)
        : block_(blocks.blockRank()), blocks_(blocks.blockCount()) {
      impl::requireWholeRows(watch, arch::blockThreads(), rowThreads);
      if constexpr (Warps > 1) {  // named barriers 1 to 15
        constexpr unsigned most = 15 * rowThreads;
        require(arch::blockThreads() <= most, watch, -1, std::uint64_t(layout::Misuse::rowThreads), most,
                arch::blockThreads());
      }
    }
    MSCCLPP_DEVICE unsigned rank() const { return arch::threadIndex() % (rowThreads); }
    MSCCLPP_DEVICE unsigned size() const { return rowThreads; }
    MSCCLPP_DEVICE unsigned row() const { return blockRow() + inBlock(); }
    MSCCLPP_DEVICE unsigned rows() const { return blocks_ * rowsOfBlock(arch::blockThreads()); }
    MSCCLPP_DEVICE unsigned blockRank() const { return 0; }
    MSCCLPP_DEVICE unsigned blockRow() const { return block_ * rowsOfBlock(arch::blockThreads()); }

    template <class T, class Op>
    MSCCLPP_DEVICE T reduce(T value, Op const& op) {
      value = mscclpp::reduce(thisWarp(), value, op);
      if constexpr (Warps == 1) return value;
      turn_ ^= 1;
      return impl::reduceOverWarps(group(), value, op, inBlock() * Warps, turn_);
    }
    MSCCLPP_DEVICE void sync() const { syncWhole(group()); }
    // `shared`, of the block in which thread `rank` of the row is.
    template <class T>
    MSCCLPP_DEVICE T* sharedOf(T& shared, unsigned) const {
      return &shared;
    }
    MSCCLPP_DEVICE void end() const {}

   private:
    MSCCLPP_DEVICE unsigned inBlock() const { return arch::threadIndex() / (rowThreads); }
    MSCCLPP_DEVICE auto group() const {
      if constexpr (Warps == 1) {
        return thisWarp();
      } else {
        return warpsOfBlock(inBlock() * Warps, Warps, 1 + inBlock());
      }
    }

    unsigned block_;
    unsigned blocks_;
    unsigned turn_ = 0;
  };
};

struct BlockPerRow {
  MSCCLPP_HOST_DEVICE static constexpr unsigned rowsOfBlock(unsigned) { return 1; }
  static constexpr LaunchShape shape(std::uint64_t payloads) {
    return {.threads = static_cast<unsigned>(minimum<std::uint64_t>(roundUp<std::uint64_t>(payloads, 32), 1024))};
  }

  template <BlockSet B>
  class Threads {
   public:
    MSCCLPP_DEVICE Threads(B const& blocks, layout::Watch* watch) : blocks_(blocks) {
      impl::requireWholeRows(watch, arch::blockThreads(), arch::warpSize);
    }
    MSCCLPP_DEVICE unsigned rank() const { return arch::threadIndex(); }
    MSCCLPP_DEVICE unsigned size() const { return arch::blockThreads(); }
    MSCCLPP_DEVICE unsigned row() const { return blocks_.blockRank(); }
    MSCCLPP_DEVICE unsigned rows() const { return blocks_.blockCount(); }
    MSCCLPP_DEVICE unsigned blockRank() const { return 0; }
    MSCCLPP_DEVICE unsigned blockRow() const { return row(); }

    template <class T, class Op>
    MSCCLPP_DEVICE T reduce(T value, Op const& op) {
      turn_ ^= 1;
      return impl::reduceOverWarps(thisBlock(), mscclpp::reduce(thisWarp(), value, op), op, 0, turn_);
    }
    MSCCLPP_DEVICE void sync() const { syncWhole(thisBlock()); }
    template <class T>
    MSCCLPP_DEVICE T* sharedOf(T& shared, unsigned) const {
      return &shared;
    }
    MSCCLPP_DEVICE void end() const {}

   private:
    B blocks_;
    unsigned turn_ = 0;
  };
};

struct ClusterPerRow {
  MSCCLPP_HOST_DEVICE static constexpr unsigned rowsOfBlock(unsigned) { return 1; }
  // Blocks of 128 threads, and larger ones where 8 are too few.
  static constexpr LaunchShape shape(std::uint64_t payloads) {
    unsigned blocks = 1;
    while (blocks < maxClusterBlocks && payloads > std::uint64_t{128} * blocks) blocks *= 2;
    return {.threads = BlockPerRow::shape(ceilDiv<std::uint64_t>(payloads, blocks)).threads, .clusterBlocks = blocks};
  }

  template <BlockSet B>
  class Threads {
   public:
    MSCCLPP_DEVICE Threads(B const& blocks, layout::Watch* watch) : blocks_(blocks) {
      impl::requireWholeRows(watch, arch::blockThreads(), arch::warpSize);
      require(blocks.blockCount() % arch::clusterBlocks() == 0, watch, -1, std::uint64_t(layout::Misuse::fewBlocks),
              arch::clusterBlocks(), blocks.blockCount());
    }
    MSCCLPP_DEVICE unsigned rank() const { return blockRank() + arch::threadIndex(); }
    MSCCLPP_DEVICE unsigned size() const { return arch::clusterBlocks() * arch::blockThreads(); }
    MSCCLPP_DEVICE unsigned row() const { return blocks_.blockRank() / arch::clusterBlocks(); }
    MSCCLPP_DEVICE unsigned rows() const { return blocks_.blockCount() / arch::clusterBlocks(); }
    MSCCLPP_DEVICE unsigned blockRank() const { return arch::clusterRank() * arch::blockThreads(); }
    MSCCLPP_DEVICE unsigned blockRow() const { return row(); }

    template <class T, class Op>
    MSCCLPP_DEVICE T reduce(T value, Op const& op) {
      turn_ ^= 1;
      value = impl::reduceOverWarps(thisBlock(), mscclpp::reduce(thisWarp(), value, op), op, 0, turn_);
      auto& shared = arch::blockShared<impl::BlockPartial<T>, impl::BlockPartial<T>>();
      if (arch::threadIndex() == 0) shared.value[turn_] = value;
      arch::syncCluster();
      T result = arch::ofClusterBlock(shared, 0)->value[turn_];
      for (unsigned block = 1; block < arch::clusterBlocks(); ++block) {
        result = op(result, arch::ofClusterBlock(shared, block)->value[turn_]);
      }
      return result;
    }
    MSCCLPP_DEVICE void sync() const { arch::syncCluster(); }
    template <class T>
    MSCCLPP_DEVICE T* sharedOf(T& shared, unsigned rank) const {
      return arch::ofClusterBlock(shared, rank / arch::blockThreads());
    }
    // No block ends while another may read its shared memory.
    MSCCLPP_DEVICE void end() const { arch::syncCluster(); }

   private:
    B blocks_;
    unsigned turn_ = 0;
  };
};

template <class G>
concept RowGroup = RowThreads<typename G::template Threads<GridGroup>> && requires {
  { G::rowsOfBlock(32u) } -> std::same_as<unsigned>;
  { G::shape(std::uint64_t{}) } -> std::same_as<LaunchShape>;
};
static_assert(RowGroup<WarpsPerRow<1>> && RowGroup<WarpsPerRow<2>> && RowGroup<BlockPerRow> && RowGroup<ClusterPerRow>);

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
