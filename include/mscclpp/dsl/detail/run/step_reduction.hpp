// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a moving step combines the values of its sources, and what all moving steps of a call work with.
#pragma once

#include "mscclpp/device/number.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/device/reduce_op.hpp"
#include "mscclpp/dsl/core/kinds.hpp"
#include "mscclpp/dsl/detail/lower/places.hpp"
#include "mscclpp/layout/plan_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

template <Number T, class Op>
class StepReduction {
 public:
  // What a slot of so many words comes to before it is rounded.
  template <unsigned Words>
  using Totals = Vector<DefaultAccumulator<T>, ElementsOf<T, Words>::size>;

  MSCCLPP_DEVICE explicit StepReduction(Op const& op) : op_(op) {}

  MSCCLPP_DEVICE Op const& op() const { return op_; }

  // The contribution of source `s`, in the order of sources.
  template <unsigned Words>
  MSCCLPP_DEVICE void add(auto const& step, int s, Payload<Words> const& value, Totals<Words>& total) const {
    auto const contribution = convert<DefaultAccumulator<T>>(unpack<T>(value));
    total = s == 0 ? contribution : reduced(step, total, contribution);
  }
  template <unsigned Words>
  MSCCLPP_DEVICE Payload<Words> conclude(auto const& step, layout::PlanShape const& shape, Totals<Words> total) const {
    if (step.concludes && static_cast<dsl::ReduceKind>(step.reduce) == dsl::ReduceKind::asCalled) {
      int const ranks = shape.ranks;
      total = map(total, [this, ranks](auto one) { return op_.finish(one, ranks); });
    }
    return pack(convert<T>(total));
  }

 private:
  template <class Values>
  MSCCLPP_DEVICE Values reduced(auto const& step, Values const& a, Values const& b) const {
    switch (static_cast<dsl::ReduceKind>(step.reduce)) {
      case dsl::ReduceKind::sum:
        return map(a, b, Sum{});
      case dsl::ReduceKind::prod:
        return map(a, b, Prod{});
      case dsl::ReduceKind::min:
        return map(a, b, Min{});
      case dsl::ReduceKind::max:
        return map(a, b, Max{});
      default:
        return map(a, b, op_);
    }
  }

  Op op_;
};

// One object for both: code for steps is best when it follows one pointer.
template <Number T, class Op, class Shape>
struct StepContext {
  using Element = T;
  template <unsigned Words>
  using Totals = typename StepReduction<T, Op>::template Totals<Words>;

  PlanPlaces<T, Shape> places;
  StepReduction<T, Op> reduction;
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
