// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the benchmarks time what they put into a stream.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace mscclpp::bench {

// Operations that precede the timed ones in a graph, so that all ranks are at the same point when timing starts.
inline constexpr int leadOperations = 2;

// Calls between two synchronisations where the processor's time is measured: further ones would wait for room in the
// stream's queue, which kernels make.
inline constexpr int mostCallsInQueue = 256;

// A repetition of a case as one rank runs it. All of these but `together` put work into the stream and return at once.
struct Repetition {
  std::function<void()> restore;  // gives the buffers their first contents again
  // Operation `index`; each reads what the one before it wrote. `behindKernel`: what is ahead in the stream is such an
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
  virtual int leads() const { return 0; }
  // Seconds per operation on this rank, for each of `replays` repetitions. All ranks call it together.
  virtual std::vector<double> measure(Repetition const& repetition, int replays) = 0;
};

// From before the first call until the stream has done all of them, by the processor's clock.
std::unique_ptr<Timer> makeLoopTimer(int warmUps);

// What each call takes of the processor's time: a sample for each of all repetitions' operations, in ascending order,
// so that the n-th of several ranks can be compared.
std::unique_ptr<Timer> makeCallTimer(int warmUps);

}  // namespace mscclpp::bench
