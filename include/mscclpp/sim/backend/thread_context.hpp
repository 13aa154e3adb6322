// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who the running simulated GPU thread is. Read by arch/sim and by tests; costs one function call.
#pragma once

namespace mscclpp::sim {

struct ThreadContext {
  int device = 0;
  unsigned block = 0;
  unsigned thread = 0;   // in the block
  unsigned threads = 0;  // of the block
  unsigned blocks = 0;   // of the grid
  unsigned warp = 0;     // in the block
  unsigned lane = 0;     // in the warp
  void* stream = nullptr;
  unsigned clusterBlocks = 1;
};

// Throws invalidUsage where no kernel is running on this host thread.
ThreadContext const& currentThread();

bool insideKernel() noexcept;

}  // namespace mscclpp::sim
