// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the compiler's hooks know about the program that calls them. Asked by mscclpp-check.
#pragma once

#include <cstdint>

namespace mscclpp::sim {

// Source files of this process that were compiled with the hooks, by the calls of their initialisers.
std::uint64_t instrumentedUnits() noexcept;

}  // namespace mscclpp::sim
