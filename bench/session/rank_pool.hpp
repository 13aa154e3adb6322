// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ranks of this process, a host thread each, doing the same thing at the same time.
//
// When one of them fails, those that wait in barrier() leave it with an error, `onFailure` is called so that kernels
// end too, and run() rethrows what the first one threw.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mscclpp::bench {

class RankPool {
 public:
  // `onFailure` is called from the failing rank's thread, once per failed run, and must not throw.
  RankPool(int ranks, std::function<void()> onFailure);
  ~RankPool();
  RankPool(RankPool const&) = delete;
  RankPool& operator=(RankPool const&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }

  // Calls work(i) on the thread of each rank i and returns when all have returned.
  void run(std::function<void(int)> const& work);

  // For the ranks inside of run(): returns when all have called it. Throws aborted once a rank has failed, and timeout
  // past the limit.
  void barrier(std::chrono::seconds limit);

 private:
  void serve(int rank);
  void finish(std::exception_ptr failure);

  std::function<void()> const onFailure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void(int)> const* work_ = nullptr;
  std::uint64_t runs_ = 0;  // begun so far
  int unfinished_ = 0;
  std::exception_ptr failure_;
  int waiting_ = 0;             // in barrier()
  std::uint64_t barriers_ = 0;  // passed so far
  bool stop_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace mscclpp::bench
