// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the name of a reduction to its C++ type, for host code.
#pragma once

#include <stdexcept>
#include <type_traits>

#include "mscclpp/device/data_type.hpp"

namespace mscclpp {

// Calls f(std::type_identity<Op>{}); throws std::invalid_argument for `none`.
template <class F>
constexpr auto withReduceOp(ReduceOp op, F&& f) {
  switch (op) {
    case ReduceOp::prod:
      return f(std::type_identity<Prod>{});
    case ReduceOp::min:
      return f(std::type_identity<Min>{});
    case ReduceOp::max:
      return f(std::type_identity<Max>{});
    case ReduceOp::avg:
      return f(std::type_identity<Avg>{});
    case ReduceOp::none:
      throw std::invalid_argument("withReduceOp: ReduceOp::none names no reduction");
    case ReduceOp::sum:
      break;
  }
  return f(std::type_identity<Sum>{});
}

}  // namespace mscclpp
