// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A reduction operation that is told when it runs, for kernels that serve all of them. Costs a choice for each pair.
#pragma once

#include "mscclpp/base/config.hpp"
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/device/reduce_op.hpp"

namespace mscclpp {

struct AnyOperation {
  ReduceOp op = ReduceOp::sum;

  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A operator()(A a, A b) const {
    switch (op) {
      case ReduceOp::prod:
        return Prod{}(a, b);
      case ReduceOp::min:
        return Min{}(a, b);
      case ReduceOp::max:
        return Max{}(a, b);
      default:
        return Sum{}(a, b);
    }
  }
  // The mean for `avg`; else the total as it is.
  template <Arithmetic A>
  MSCCLPP_HOST_DEVICE constexpr A finish(A total, int count) const {
    return op == ReduceOp::avg ? Avg{}.finish(total, count) : total;
  }
};

}  // namespace mscclpp
