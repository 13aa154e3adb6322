// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory that is several allocations side by side, such as PyTorch's expandable segments: one range of addresses, to
// whoever uses it. A machine that can have it is one of these beside a Runtime.
#pragma once

#include <cstddef>
#include <span>

#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

struct SharedPiece {
  int descriptor;
  std::size_t bytes;
};

class SplitMemory {
 public:
  virtual ~SplitMemory() = default;
  // Whether what lies at the end of this allocation can belong to the same memory.
  virtual bool mayGoOn(Allocation const& allocation) const = 0;
  // As Runtime::importDescriptor(), of pieces that lie one behind the other then; releaseImport() ends all of them.
  virtual void* importPieces(int device, std::span<SharedPiece const> pieces) = 0;
};

}  // namespace mscclpp
