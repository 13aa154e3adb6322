// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interprets a plan's table, whatever it says: one kernel per element type. The operation is looked up as it goes.
#pragma once

#include "dsl/start_plan.hpp"
#include "mscclpp/device/any_operation.hpp"
#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::dsl {
inline namespace MSCCLPP_BACKEND {

struct AnyOp : AnyOperation {
  // What the switch is asked for.
  MSCCLPP_HOST_DEVICE constexpr ReduceKind kind() const { return kindOf(op); }
};

template <Number T, PacketFormat F>
struct PlanKernel {
  MSCCLPP_DEVICE void operator()(T const* in, T* out, std::uint64_t count, ReduceOp op, layout::PlanHandle const& plan,
                                 layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow) const {
    dsl_impl::requireShape(plan);
    dsl_impl::requireRoom(plan, count * sizeof(T));
    if (count == 0) return waitForPreviousKernel();
    dsl_impl::PlanRunner<T, AnyOp, F> runner(plan, inWindow, outWindow, {in, out, count}, AnyOp{{op}});
    dsl_impl::runTable(runner, plan);
    runner.finish();
  }
};

template <Number T>
void startPlanOf(Stream const& stream, LaunchShape const& shape, PlanStart const& start) {
  auto const with = [&]<PacketFormat F>(std::type_identity<F>) {
    launch(stream, shape, PlanKernel<T, F>{}, static_cast<T const*>(start.in), static_cast<T*>(start.out), start.count,
           start.op, start.plan, start.inWindow, start.outWindow);
  };
  // ExecutionPlan::refusal() has seen that a packet holds an element.
  if constexpr (sizeof(T) <= LL8::words * 4) {
    if (start.packets == PlanPackets::ll8) return with(std::type_identity<LL8>{});
  }
  with(std::type_identity<LL16>{});
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::dsl
