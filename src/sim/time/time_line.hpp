// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The time line of a timed run, for the trace (mscclpp/host/trace.hpp): kernels, copies in streams and, of each block,
// the life and the waits of its first thread, whose neighbours do alike.
#pragma once

#include <cstddef>
#include <string>

#include "sim/task/gpu_thread.hpp"

namespace mscclpp::sim {

// While it lives, the trace goes by the clocks of VirtualTime::running.
class TracedTime {
 public:
  TracedTime();
  ~TracedTime();
  TracedTime(TracedTime const&) = delete;
  TracedTime& operator=(TracedTime const&) = delete;
};

// Whether a timed run is traced.
bool isTraced();
// And shows this task.
bool isShown(Task const& task);

// Kernels that run at once have different lanes (VirtualTime::takeLane).
void showKernel(int device, int lane, std::string name, Picoseconds begin, Picoseconds end);
void showThread(GpuThread const& thread, std::string const& kernel);
void showWait(GpuThread const& thread, std::string what, Picoseconds begin);  // until now
void showCopy(int device, std::size_t bytes, Picoseconds begin, Picoseconds end);

}  // namespace mscclpp::sim
