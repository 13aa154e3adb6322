// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs all ranks of a program in this one host thread, each step chosen by one seeded scheduler.
//
// Rank r's host code is a fiber that uses device r; its kernels' threads are fibers too. Which runs next, and where a
// thread is interrupted, follows from the seed alone: the same seed gives the same run. Host waits of the library
// (host/wait.hpp) and Runtime::synchronize let others run; `thread_local` data is shared by the ranks, and other host
// threads must stay off the machine meanwhile.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/sim/timing.hpp"

namespace mscclpp::sim {

// How many ranks there are, and what decides who runs next.
struct RunOptions {
  int ranks = 1;
  std::uint64_t seed = 1;
  double preemption = 0.05;  // chance that a thread is interrupted at a memory step
  // The run is timed: who runs next follows from how far each thread's clock is behind, in place of the seed.
  std::optional<TimingModel> timing{};
  // When nobody can go on: the wait whose limit ends first gives up, as on a real machine, rather than the run.
  bool waitsExpire = false;
  std::size_t hostStackBytes = std::size_t{1} << 20;  // of each rank's host code
  std::chrono::seconds wallLimit{120};                // for kernels that spin without the library's poll; 0: none
};

// What a rank's code is given. Its device has the rank's number.
class RankContext {
 public:
  RankContext(int rank, int ranks, std::shared_ptr<Bootstrap> bootstrap)
      : rank_(rank), ranks_(ranks), bootstrap_(std::move(bootstrap)) {}
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return rank_; }
  // Of a timed run: this rank's clock, which a wait for work of a stream moves to the end of that work. Else 0.
  double nanoseconds() const;
  // Among the ranks of this run, for a Communicator. A rank whose code has returned has left it.
  std::shared_ptr<Bootstrap> const& bootstrap() const { return bootstrap_; }

 private:
  int rank_;
  int ranks_;
  std::shared_ptr<Bootstrap> bootstrap_;
};

// What a run came to that has thrown nothing.
struct RunSummary {
  std::uint64_t seed = 0;
  std::uint64_t switches = 0;  // times a fiber was resumed
  std::uint64_t memorySteps = 0;
  std::uint64_t trace = 0;  // hash of every choice; equal for equal runs
  double nanoseconds = 0;   // of a timed run: its length
};

// Returns when every rank's code has returned and every kernel has ended. What a rank throws is rethrown here after all
// other fibers have been unwound. Throws timeout, with the list of who waits for what and the seed, as soon as nobody
// can go on.
RunSummary run(RunOptions const& options, std::function<void(RankContext&)> const& rankMain);

}  // namespace mscclpp::sim
