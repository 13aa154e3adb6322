// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dsl/plan_kernel.hpp"

namespace mscclpp::dsl {
inline namespace MSCCLPP_BACKEND {

template void startPlanOf<Half>(Stream const&, LaunchShape const&, PlanStart const&);
template void startPlanOf<BFloat16>(Stream const&, LaunchShape const&, PlanStart const&);

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::dsl
