// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fills the kernel table: one function per machine of the build, which calls those of the device sources.
#pragma once

#include <type_traits>

#include "mscclpp/collectives/kernel_table.hpp"

namespace mscclpp {

template <DeviceKind Machine>
using MachineTag = std::integral_constant<DeviceKind, Machine>;

namespace collectives_impl {

void enterKernels(KernelTable& table, MachineTag<DeviceKind::sim>);
void enterKernels(KernelTable& table, MachineTag<DeviceKind::cuda>);

}  // namespace collectives_impl
}  // namespace mscclpp
