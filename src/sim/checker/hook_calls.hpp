// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What instrumented code tells the checker. Called by hooks/tsan_hooks.cpp only; does nothing outside of checked runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/order.hpp"
#include "sim/memory/access.hpp"

namespace mscclpp::sim {

void hookAccess(void const* address, std::size_t bytes, bool write, void const* code) noexcept;
void hookEnter(void const* code) noexcept;
void hookLeave() noexcept;

// Accesses of std::atomic and the like: system scope. Bytes: 1, 2, 4 or 8.
std::uint64_t hookLoad(void const* address, unsigned bytes, Order order, void const* code);
void hookStore(void* address, unsigned bytes, std::uint64_t value, Order order, void const* code);
// Returns the value found.
std::uint64_t hookUpdate(void* address, unsigned bytes, UpdateKind kind, std::uint64_t operand, std::uint64_t expected,
                         Order order, void const* code);
void hookFence(Order order, void const* code);
// One of another size, which fails the kernel whose memory it is on.
void hookOddAtomic(void const* address, std::size_t bytes);

}  // namespace mscclpp::sim
