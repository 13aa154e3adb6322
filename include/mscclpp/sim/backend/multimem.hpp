// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Accesses of a simulated kernel to multicast addresses. Called by arch/sim/multimem.hpp; device/multimem.hpp has the
// contract.
//
// A multicast address stands for one place in the memory of each rank of its window. An access is one step for each of
// them, so others may see it arrive in some and not yet in the rest. It fails the kernel where the address is
// misaligned or in no window of this device, or the memory behind it is not open to the device or was given back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/base/order.hpp"

namespace mscclpp::sim {

inline constexpr std::size_t mostMulticastBytes = 16;

struct MulticastValues {
  int ranks = 0;
  std::byte bytes[maxTeamSize][mostMulticastBytes];  // by rank of the window
};

// `unit`: bytes that arrive whole, 4 or 8; `bytes` is a multiple of it.
void multimemLoad(void const* address, unsigned bytes, unsigned unit, Order order, Scope scope,
                  MulticastValues& values);
void multimemStore(void* address, void const* value, unsigned bytes, unsigned unit, Order order, Scope scope);
// Each unit becomes combine(what is there, the one of `value`).
void multimemUpdate(void* address, void const* value, unsigned bytes, unsigned unit, Order order, Scope scope,
                    std::uint64_t (*combine)(std::uint64_t found, std::uint64_t operand));
void multimemFence();

}  // namespace mscclpp::sim
