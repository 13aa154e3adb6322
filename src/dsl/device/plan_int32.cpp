// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dsl/plan_kernel.hpp"

namespace mscclpp::dsl {
inline namespace MSCCLPP_BACKEND {

template void startPlanOf<std::int32_t>(Stream const&, LaunchShape const&, PlanStart const&);
template void startPlanOf<std::uint32_t>(Stream const&, LaunchShape const&, PlanStart const&);

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::dsl
