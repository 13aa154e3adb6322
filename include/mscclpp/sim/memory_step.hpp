// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every ordered memory access of a simulated kernel passes here before it happens. Called by arch/sim/memory.hpp.
//
// A step is a point where the scheduler may let another thread run. It fails the kernel when the address is misaligned,
// is no memory of the machine, or belongs to a device that this one has not been given access to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/device/order.hpp"

namespace mscclpp::sim {

void memoryStep(void const* address, std::size_t bytes, bool write, Order order, Scope scope);
void fenceStep(Order order, Scope scope);

// Relaxed, system scope. Each 8-byte half is one step; which half goes first is the scheduler's choice.
Words4 loadWords4(Words4 const* address);
void storeWords4(Words4* address, Words4 const& value);

// Called by all lanes of a warp; the whole warp's accesses are one step. Other processes that share the memory see the
// words of a line arrive in ascending order. On a machine without `linesArriveWhole` each lane is on its own.
void storeLines(Words4* address, Words4 const& value, bool active);
Words4 loadLines(Words4 const* address, bool active);

}  // namespace mscclpp::sim
