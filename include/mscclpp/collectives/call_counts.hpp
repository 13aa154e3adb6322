// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How often this process has called each collective, by which algorithm and with how many bytes.
//
//   CallCounts::start();
//   ...
//   for (CallCount const& count : CallCounts::all()) print(nameOf(count.collective), count.algorithm, count.calls,
//   count.bytes);
//
// Off unless start() is called or MSCCLPP_COUNTS names a file, which is written when the program ends; then a call
// costs one relaxed load more. On, two additions to words that the ranks of a process share. Calls of all communicators
// and threads count, those of NCCL's interface and of PyTorch too: each rank that is a thread here counts its own. A
// call that is captured into a graph counts once, when it is captured; what replays do is not seen. Messages between
// pairs count as sendrecv, with the bytes that this rank sends.
//
// Profilers that read NVTX (Nsight Systems) see a range for each call, "allreduce twoshot_ll128 1048576 B" in the
// domain "mscclpp", from when it begins on the host until it has started; nothing needs to be set, and without such a
// profiler it costs nothing more. In builds with CUDA's toolkit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp {

struct CallCount {
  Collective collective{};
  std::string algorithm;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;  // of each call's larger buffer, added up
};

// From any thread.
class CallCounts {
 public:
  // Counts from now on, from nothing.
  static void start();
  static void stop();
  // Those that are not zero, by collective, then by name.
  static std::vector<CallCount> all();
  // The same as a table, one line each; throws systemError where the file cannot be written.
  static void write(std::string const& file);
};

}  // namespace mscclpp
