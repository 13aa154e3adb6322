// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels that interpret plans: one function per machine of the build starts them, by way of one per element type.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/base/config.hpp"
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/dsl/core/program.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp::dsl {

// What a plan's step names for an operation; an average is what the call asks for, and no step's.
MSCCLPP_HOST_DEVICE constexpr ReduceKind kindOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ReduceKind::sum;
    case ReduceOp::prod:
      return ReduceKind::prod;
    case ReduceOp::min:
      return ReduceKind::min;
    case ReduceOp::max:
      return ReduceKind::max;
    default:
      return ReduceKind::asCalled;
  }
}

template <DeviceKind Machine>
using MachineTag = std::integral_constant<DeviceKind, Machine>;

void startPlan(Stream const& stream, LaunchShape const& shape, PlanStart const& start, MachineTag<DeviceKind::sim>);
void startPlan(Stream const& stream, LaunchShape const& shape, PlanStart const& start, MachineTag<DeviceKind::cuda>);

inline namespace MSCCLPP_BACKEND {

// device/plan_*.cpp hold a few types each, since they take long to compile.
template <Number T>
void startPlanOf(Stream const& stream, LaunchShape const& shape, PlanStart const& start);

}  // namespace MSCCLPP_BACKEND

}  // namespace mscclpp::dsl
