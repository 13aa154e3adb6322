// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ordered memory accesses of a simulated kernel. Called by arch/sim/memory.hpp.
//
// Each is a point where the scheduler may let another thread run. It fails the kernel when the address is misaligned,
// is no memory of the machine, or belongs to a device that this one has not been given access to. In a checked run the
// memory model chooses what a load returns; otherwise memory is sequentially consistent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/order.hpp"

namespace mscclpp::sim {

// Words of 4 or 8 bytes, their bits in the low end of the value.
std::uint64_t loadWord(void const* address, unsigned bytes, Order order, Scope scope);
void storeWord(void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope);
// These return the value found.
std::uint64_t addWord(void* address, unsigned bytes, std::uint64_t operand, Order order, Scope scope);
std::uint64_t exchangeWord(void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope);
std::uint64_t compareExchangeWord(void* address, unsigned bytes, std::uint64_t expected, std::uint64_t desired,
                                  Order order, Scope scope);
void fenceStep(Order order, Scope scope);
// Relaxed. Each unit of 4 or 8 bytes is a step, and becomes combine(what is there, the one of `values`).
void combineWords(void* address, void const* values, unsigned bytes, unsigned unit, Scope scope,
                  std::uint64_t (*combine)(std::uint64_t found, std::uint64_t operand));

// Relaxed, system scope. Each 8-byte half is one step; which half goes first is the scheduler's choice.
Words4 loadWords4(Words4 const* address);
void storeWords4(Words4* address, Words4 const& value);

// Called by all lanes of a warp; the whole warp's accesses are one step. Other processes that share the memory see the
// words of a line arrive in ascending order. On a machine without `linesArriveWhole` each lane is on its own.
void storeLines(Words4* address, Words4 const& value, bool active);
Words4 loadLines(Words4 const* address, bool active);

}  // namespace mscclpp::sim
