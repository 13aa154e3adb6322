// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fills the kernel table, one function per machine of the build, which calls those of the device sources; and
// which machine's a call is for.
#pragma once

#include <type_traits>

#include "base/format.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

template <DeviceKind Machine>
using MachineTag = std::integral_constant<DeviceKind, Machine>;

namespace collectives_impl {

void enterKernels(KernelTable& table, MachineTag<DeviceKind::sim>);
void enterKernels(KernelTable& table, MachineTag<DeviceKind::cuda>);

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

}  // namespace collectives_impl
}  // namespace mscclpp
