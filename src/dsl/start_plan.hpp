// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels that interpret plans: one function per machine of the build starts them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mscclpp/collectives/data_type.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/layout/plan_handle.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp::dsl {

struct PlanStart {
  void const* in;
  void* out;
  std::uint64_t count;  // elements of the message
  DataType type;
  ReduceOp op;
  layout::PlanHandle const& plan;
  layout::WindowHandle const& inWindow;
  layout::WindowHandle const& outWindow;
};

template <DeviceKind Machine>
using MachineTag = std::integral_constant<DeviceKind, Machine>;

void startPlan(Stream const& stream, LaunchShape const& shape, PlanStart const& start, MachineTag<DeviceKind::sim>);
void startPlan(Stream const& stream, LaunchShape const& shape, PlanStart const& start, MachineTag<DeviceKind::cuda>);

}  // namespace mscclpp::dsl
