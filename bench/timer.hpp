// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the benchmarks time what they put into a stream.
#pragma once

#include <functional>
#include <vector>

namespace mscclpp::bench {

// A repetition of a case as one rank runs it. All of these but `together` put work into the stream and return at once.
struct Repetition {
  std::function<void()> restore;  // gives the buffers their first contents again
  // ReduceOp `index`; each reads what the one before it wrote. `behindKernel`: what is ahead in the stream is such an
  // operation, so their launches may overlap.
  std::function<void(int index, bool behindKernel)> operate;
  int operations = 1;
  std::function<void()> together;     // returns when all ranks have called it
  std::function<void()> synchronize;  // waits for the stream, with a limit
};

class Timer {
 public:
  virtual ~Timer() = default;
  // Operations that run ahead of the timed ones in every repetition.
  virtual int leads() const = 0;
  // Seconds per operation on this rank, for each of `replays` repetitions. All ranks call it together.
  virtual std::vector<double> measure(Repetition const& repetition, int replays) = 0;
};

}  // namespace mscclpp::bench
