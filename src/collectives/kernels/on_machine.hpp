// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which machine's kernels a call is for; in sources of the host alone.
#pragma once

#include "base/format.hpp"
#include "collectives/kernels/enter_kernels.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::collectives_impl {

// f(MachineTag), of the machine with such devices. `what` needs its kernels.
template <class F>
void onMachine(DeviceKind kind, [[maybe_unused]] char const* what, F const& f) {
#if defined(MSCCLPP_COLLECTIVES_SIM)
  if (kind == DeviceKind::sim) return f(MachineTag<DeviceKind::sim>{});
#endif
#if defined(MSCCLPP_COLLECTIVES_CUDA)
  if (kind == DeviceKind::cuda) return f(MachineTag<DeviceKind::cuda>{});
#endif
  fail(ErrorCode::unsupported, "{}: this build has no kernels for devices of kind {}", what, nameOf(kind));
}

}  // namespace mscclpp::collectives_impl
