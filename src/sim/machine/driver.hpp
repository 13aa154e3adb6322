// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who drives the machine outside of deterministic runs: host threads take turns. Whoever waits for a stream drives the
// scheduler until its own work is done, the others sleep and one of them takes over; while there is work that no one
// waits for, a thread of the machine's own drives.
//
// Everything here may be called from any thread; what takes a lock wants the one that lock() gives, and returns with
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "sim/machine/stream.hpp"

namespace mscclpp::sim {

class Machine;

class Driver {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit Driver(Machine& machine) : machine_(machine) {}

  Lock lock() { return Lock(mutex_); }

  // Work for the stream, which whoever drives takes out of the inbox.
  void post(Stream& stream, Work work);
  void drainInbox();
  bool hasPosts() const { return !inbox_.empty(); }  // under the lock
  void noteSubmitted() { pending_.fetch_add(1, std::memory_order_acq_rel); }
  void noteCompleted() { pending_.fetch_sub(1, std::memory_order_release); }
  bool working() const { return pending_.load(std::memory_order_acquire) > 0; }
  void noteIdle() { ++completions_; }  // a stream has become idle; by whoever drives

  // Drives until `done`; false when the deadline passes first. The lock is not held meanwhile.
  bool driveUntil(Lock& lock, std::function<bool()> const& done, std::chrono::steady_clock::time_point deadline);
  void driveIfNobodyDoes(Lock& lock);  // for a while
  void awaitQuiet(Lock& lock);         // nobody drives until the lock is given up
  // Runs `act` while nobody drives, without the lock.
  void whileQuiet(Lock& lock, std::function<void()> const& act);

 private:
  bool driveBatch(Lock& lock);  // false when nobody could go on
  void startHelper();           // under the lock
  void helperMain();
  void stopHelper();
  void beforeFork();
  void afterFork(bool inChild);

  Machine& machine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool driving_ = false;
  unsigned quietRequests_ = 0;  // threads that need the machine to stand still
  unsigned waiters_ = 0;        // threads in driveUntil
  bool helperRuns_ = false;
  bool helperStops_ = false;
  std::atomic<std::int64_t> pending_{0};  // work submitted and not completed, of all streams
  std::vector<std::pair<Stream*, Work>> inbox_;
  std::atomic<bool> mail_{false};
  std::uint64_t completions_ = 0;  // streams that became idle
};

}  // namespace mscclpp::sim
