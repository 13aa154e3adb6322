// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A row a block, as BlockPerRow, with CUB's block reduction in place of this library's; for GPUs alone. CUB's result is
// in one thread, so the others get it through shared memory.
#pragma once

#include <cub/block/block_reduce.cuh>

#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"

namespace rows_bench {
inline namespace MSCCLPP_BACKEND {

template <unsigned BlockThreads>
struct CubPerRow {
  // Of the blocks that it is compiled for.
  static constexpr unsigned threads = BlockThreads;

  template <mscclpp::BlockSet B>
  class Threads : public mscclpp::BlockPerRow::Threads<B> {
   public:
    MSCCLPP_DEVICE Threads(B const& blocks, mscclpp::layout::Watch* watch)
        : mscclpp::BlockPerRow::Threads<B>(blocks, watch) {}

    template <class T, class Op>
    MSCCLPP_DEVICE T reduce(T value, T const& /*neutral*/, Op const& op) {
      using Reduce = cub::BlockReduce<T, BlockThreads>;
      struct Shared {
        typename Reduce::TempStorage storage[2];
        T result[2];
      };
      auto& shared = mscclpp::arch::blockShared<Shared, CubPerRow>();
      turn_ ^= 1;  // who writes one of the two again has passed the barrier of the other
      value = Reduce(shared.storage[turn_]).Reduce(value, op);
      if (mscclpp::thisBlock().rank() == 0) shared.result[turn_] = value;
      mscclpp::thisBlock().sync();
      return shared.result[turn_];
    }

   private:
    unsigned turn_ = 0;
  };
};

}  // namespace MSCCLPP_BACKEND
}  // namespace rows_bench
