// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ordered accesses of the running thread: refused where it may not use the memory, then a step of the scheduler, then
// carried out, by the observer where there is one. `code` is where the access stands.
#pragma once

#include <cstdint>

#include "sim/machine/kernel.hpp"
#include "sim/memory/access.hpp"

namespace mscclpp::sim {

std::uint64_t loadStep(GpuThread& self, Access const& access, void const* code);
void storeStep(GpuThread& self, Access const& access, std::uint64_t value, void const* code);
std::uint64_t updateStep(GpuThread& self, Access const& access, WordUpdate const& update, void const* code);
void fenceStep(GpuThread& self, Order order, Scope scope, void const* code);

}  // namespace mscclpp::sim
