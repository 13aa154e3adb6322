// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where copies of the machine find a memory, which may be more than its kernels may use.
#pragma once

#include <cstddef>

#include "mscclpp/host/memory.hpp"

namespace mscclpp {

class MappedMemory {
 public:
  // Throws unsupported where there is no such address.
  static std::byte* address(RegisteredMemory const& memory);
};

}  // namespace mscclpp
