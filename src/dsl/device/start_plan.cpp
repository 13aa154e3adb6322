// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dsl/start_plan.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::dsl {

void startPlan(Stream const& stream, LaunchShape const& shape, PlanStart const& start, MachineTag<kernelDevice>) {
  withDataType(start.type, [&]<class T>(std::type_identity<T>) { startPlanOf<T>(stream, shape, start); });
}

}  // namespace mscclpp::dsl
