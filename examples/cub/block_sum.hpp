// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sum of a value over a block, in thread 0: by this library on either machine, by CUB on GPUs. A kernel takes one
// or the other as a template argument.
#pragma once

#include "mscclpp/device/group_ops.hpp"
#include "mscclpp/device/reduce_op.hpp"

#if defined(__CUDACC__)
#include <cub/block/block_reduce.cuh>
#endif

inline namespace MSCCLPP_BACKEND {

struct OwnSum {
  static constexpr char const* name = "mscclpp::reduce";
  MSCCLPP_DEVICE float operator()(float value) const {
    return mscclpp::reduce(mscclpp::thisBlock(), value, mscclpp::Sum{});
  }
};

#if defined(__CUDACC__)
// CUB wants to know the block's size when it is compiled, and memory that nobody else uses until all have left.
template <unsigned Threads>
struct CubSum {
  using Reduce = cub::BlockReduce<float, Threads>;
  static constexpr char const* name = "cub::BlockReduce";
  MSCCLPP_DEVICE float operator()(float value) const {
    auto& storage = mscclpp::arch::blockShared<typename Reduce::TempStorage, CubSum>();
    float const sum = Reduce(storage).Sum(value);
    mscclpp::thisBlock().sync();
    return sum;
  }
};
#endif

}  // namespace MSCCLPP_BACKEND
