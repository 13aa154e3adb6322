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
// the same place, as often. In a block a reduction costs a barrier of the row's threads; the warps of a cluster put
// their partial results into the shared memory of all its blocks, whose barriers count them (device/bulk_copy.hpp).
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/bulk_copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/group_ops.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

template <class T>
struct RowPartials {
  T perWarp[2][32];
};

// The partial results of all warps of a cluster, in each of its blocks. Two sets in turn: who puts into one again has
// awaited the other, which all warps put into with the reads of the one behind them.
struct ClusterPartials {
  struct Set {
    BulkBarrier come;
    std::uint64_t room[maxClusterBlocks * 32];

    template <class T>
    MSCCLPP_DEVICE T& perWarp(unsigned warp) {
      static_assert(sizeof(T) <= sizeof room[0]);
      return reinterpret_cast<T*>(room)[warp];
    }
  };
  Set sets[2];
};

// Over the results of so many warps, of which get(i) is that of the i-th: each lane has some of them. The same bits in
// all lanes.
template <class T, class Op, class Get>
MSCCLPP_DEVICE T reducePartials(unsigned warps, T const& neutral, Op const& op, Get const& get) {
  T result = neutral;
  for (unsigned i = arch::threadIndex() % arch::warpSize; i < warps; i += arch::warpSize) result = op(result, get(i));
  return mscclpp::reduce(thisWarp(), result, op);
}

// Of some warps of a block, each of which has a value of its own. Two sets in turn: who writes one again has passed the
// barrier of the other, which all reach with the reads of the one behind them.
template <class T, SyncGroup G, class Op>
MSCCLPP_DEVICE T reduceOverWarps(G const& group, T value, T const& neutral, Op const& op, unsigned firstWarp,
                                 unsigned turn) {
  auto& shared = arch::blockShared<RowPartials<T>, RowPartials<T>>();
  auto const thread = arch::threadIndex();
  if (thread % arch::warpSize == 0) shared.perWarp[turn][thread / arch::warpSize] = value;
  syncWhole(group);
  return reducePartials(group.size() / arch::warpSize, neutral, op,
                        [&](unsigned i) { return shared.perWarp[turn][firstWarp + i]; });
}

MSCCLPP_DEVICE void requireWholeRows(layout::Watch* watch, unsigned threads, unsigned multiple) {
  require(threads % multiple == 0, watch, -1, std::uint64_t(layout::Misuse::blockThreads), roundUp(threads, multiple),
          threads);
}

}  // namespace impl

// rank(), size(): of the row's threads that are in this block; syncBlock() meets these. part(), parts(): which of the
// row's blocks this is, and how many it has. row(), rows(): which of the rows of one pass over the grid it is, and how
// many there are; blockRow(): of the first thread of this block. reduce() takes what `op` changes nothing with.
// meet() comes once, ahead of the others, by all threads: while the first packets are on their way; leave() behind
// them, so that further calls of the kernel may have row threads of their own.
template <class T>
concept RowThreads = requires(T threads) {
  { threads.rank() } -> std::same_as<unsigned>;
  { threads.size() } -> std::same_as<unsigned>;
  { threads.row() } -> std::same_as<unsigned>;
  { threads.rows() } -> std::same_as<unsigned>;
  { threads.part() } -> std::same_as<unsigned>;
  { threads.parts() } -> std::same_as<unsigned>;
  { threads.blockRow() } -> std::same_as<unsigned>;
  { threads.reduce(1.0f, 0.0f, Sum{}) } -> std::same_as<float>;
  threads.syncBlock();
  threads.meet();
  threads.leave();
};

template <unsigned Warps>
struct WarpsPerRow {
  static_assert(Warps >= 1 && Warps <= 32);
  static constexpr unsigned rowThreads = Warps * 32;
  // Rows that are with a block of so many threads.
  MSCCLPP_HOST_DEVICE static constexpr unsigned rowsOfBlock(unsigned threads) { return threads / rowThreads; }
  // Threads and cluster for rows of so many chunks, one of a thread. `Slots`: of impl::RowSlots.
  template <class Slots>
  static constexpr LaunchShape shape(std::uint64_t) {
    return {.threads = roundUp(256u, rowThreads)};
  }

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
    MSCCLPP_DEVICE unsigned part() const { return 0; }
    MSCCLPP_DEVICE unsigned parts() const { return 1; }
    MSCCLPP_DEVICE unsigned blockRow() const { return block_ * rowsOfBlock(arch::blockThreads()); }

    template <class T, class Op>
    MSCCLPP_DEVICE T reduce(T value, T const& neutral, Op const& op) {
      value = mscclpp::reduce(thisWarp(), value, op);
      if constexpr (Warps == 1) return value;
      turn_ ^= 1;
      return impl::reduceOverWarps(group(), value, neutral, op, inBlock() * Warps, turn_);
    }
    MSCCLPP_DEVICE void syncBlock() const { syncWhole(group()); }
    MSCCLPP_DEVICE void meet() const {}
    MSCCLPP_DEVICE void leave() const {}

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
  // One. The shape has a thread for each chunk, in whole warps, but no more than 1024.
  MSCCLPP_HOST_DEVICE static constexpr unsigned rowsOfBlock(unsigned) { return 1; }
  template <class Slots>
  static constexpr LaunchShape shape(std::uint64_t chunks) {
    return {.threads = static_cast<unsigned>(minimum<std::uint64_t>(Slots::threadsFor(chunks), 1024))};
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
    MSCCLPP_DEVICE unsigned part() const { return 0; }
    MSCCLPP_DEVICE unsigned parts() const { return 1; }
    MSCCLPP_DEVICE unsigned blockRow() const { return row(); }

    template <class T, class Op>
    MSCCLPP_DEVICE T reduce(T value, T const& neutral, Op const& op) {
      turn_ ^= 1;
      return impl::reduceOverWarps(thisBlock(), mscclpp::reduce(thisWarp(), value, op), neutral, op, 0, turn_);
    }
    MSCCLPP_DEVICE void syncBlock() const { syncWhole(thisBlock()); }
    MSCCLPP_DEVICE void meet() const {}
    MSCCLPP_DEVICE void leave() const {}

   private:
    B blocks_;
    unsigned turn_ = 0;
  };
};

struct ClusterPerRow {
  // One, which it shares with the other blocks of its cluster.
  MSCCLPP_HOST_DEVICE static constexpr unsigned rowsOfBlock(unsigned) { return 1; }
  // Blocks of 128 chunks, and larger ones where 8 are too few.
  template <class Slots>
  static constexpr LaunchShape shape(std::uint64_t chunks) {
    unsigned blocks = 1;
    while (blocks < maxClusterBlocks && chunks > std::uint64_t{128} * blocks) blocks *= 2;
    auto shape = BlockPerRow::shape<Slots>(ceilDiv<std::uint64_t>(chunks, blocks));
    shape.clusterBlocks = blocks;
    return shape;
  }

  template <BlockSet B>
  class Threads {
   public:
    MSCCLPP_DEVICE Threads(B const& blocks, layout::Watch* watch) : watch_(watch), blocks_(blocks) {
      impl::requireWholeRows(watch, arch::blockThreads(), arch::warpSize);
      require(blocks.blockCount() % arch::clusterBlocks() == 0, watch, -1, std::uint64_t(layout::Misuse::fewBlocks),
              arch::clusterBlocks(), blocks.blockCount());
      if (isAlone()) return;
      if (rank() == 0) {
        for (auto& set : partials_.sets) set.come.init(1);
      }
      arch::arriveAtCluster();
    }
    MSCCLPP_DEVICE unsigned rank() const { return arch::threadIndex(); }
    MSCCLPP_DEVICE unsigned size() const { return arch::blockThreads(); }
    MSCCLPP_DEVICE unsigned part() const { return arch::clusterRank(); }
    MSCCLPP_DEVICE unsigned parts() const { return arch::clusterBlocks(); }
    MSCCLPP_DEVICE unsigned row() const { return blocks_.blockRank() / arch::clusterBlocks(); }
    MSCCLPP_DEVICE unsigned rows() const { return blocks_.blockCount() / arch::clusterBlocks(); }
    MSCCLPP_DEVICE unsigned blockRow() const { return row(); }

    // A block may end behind its last one: what the others put into its memory has come by then.
    template <class T, class Op>
    MSCCLPP_DEVICE T reduce(T value, T const& neutral, Op const& op) {
      value = mscclpp::reduce(thisWarp(), value, op);
      auto const turn = reductions_++;
      if (isAlone()) return impl::reduceOverWarps(thisBlock(), value, neutral, op, 0, turn % 2);
      auto& set = partials_.sets[turn % 2];
      syncWhole(thisWarp());  // all lanes are through with the other set
      if (rank() == 0) set.come.arriveExpect(warps() * sizeof(T));
      if (theirs_ != nullptr) {
        auto& there = theirs_->sets[turn % 2];
        putCounted(there.template perWarp<T>((part() * size() + rank()) / arch::warpSize), value, there.come);
      }
      set.come.wait(watch_, turn / 2 % 2);
      return impl::reducePartials(warps(), neutral, op, [&](unsigned i) { return set.template perWarp<T>(i); });
    }
    MSCCLPP_DEVICE void syncBlock() const { syncWhole(thisBlock()); }
    // All have made their barriers.
    MSCCLPP_DEVICE void meet() {
      if (isAlone()) return;
      arch::awaitCluster();
      auto const lane = rank() % arch::warpSize;
      if (lane < parts()) theirs_ = arch::ofClusterBlock(partials_, lane);
    }
    MSCCLPP_DEVICE void leave() const {
      if (isAlone()) return;
      syncBlock();
      if (rank() != 0) return;
      for (auto& set : partials_.sets) set.come.invalidate();
    }

   private:
    MSCCLPP_DEVICE unsigned warps() const { return parts() * size() / arch::warpSize; }
    // Older GPUs have neither clusters nor such barriers.
    MSCCLPP_DEVICE bool isAlone() const { return !hasBulkCopies() || parts() == 1; }

    impl::ClusterPartials& partials_ = arch::blockShared<impl::ClusterPartials, impl::ClusterPartials>();
    impl::ClusterPartials* theirs_ = nullptr;  // where this warp's partial results go, by the lane that puts them there
    layout::Watch* watch_;
    B blocks_;
    std::uint32_t reductions_ = 0;
  };
};

namespace impl {

struct AnySlots {
  static constexpr std::uint64_t threadsFor(std::uint64_t chunks) { return chunks; }
};

}  // namespace impl

template <class G>
concept RowGroup = RowThreads<typename G::template Threads<GridGroup>> && requires {
  { G::rowsOfBlock(32u) } -> std::same_as<unsigned>;
  { G::template shape<impl::AnySlots>(std::uint64_t{}) } -> std::same_as<LaunchShape>;
};
static_assert(RowGroup<WarpsPerRow<1>> && RowGroup<WarpsPerRow<2>> && RowGroup<BlockPerRow> && RowGroup<ClusterPerRow>);

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
