// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/rank_pool.hpp"

#include <fmt/format.h>

#include <utility>

#include "mscclpp/host/error.hpp"

namespace mscclpp::bench {

RankPool::RankPool(int ranks, std::function<void()> onFailure) : onFailure_(std::move(onFailure)) {
  for (int rank = 0; rank < ranks; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
}

RankPool::~RankPool() {
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

void RankPool::run(std::function<void(int)> const& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  failure_ = nullptr;
  waiting_ = 0;
  unfinished_ = size();
  ++runs_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return unfinished_ == 0; });
  work_ = nullptr;
  if (failure_) std::rethrow_exception(failure_);
}

void RankPool::serve(int rank) {
  for (std::uint64_t served = 0;; ++served) {
    std::function<void(int)> const* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || runs_ > served; });
      if (runs_ == served) return;
      work = work_;
    }
    std::exception_ptr failure;
    try {
      (*work)(rank);
    } catch (...) {
      failure = std::current_exception();
    }
    finish(failure);
  }
}

void RankPool::finish(std::exception_ptr failure) {
  bool first = false;
  if (failure) {
    std::lock_guard const lock(mutex_);
    first = failure_ == nullptr;
    if (first) failure_ = failure;
  }
  // While this rank still counts as unfinished, so that what it uses is still there.
  if (first) {
    changed_.notify_all();
    onFailure_();
  }
  {
    std::lock_guard const lock(mutex_);
    --unfinished_;
  }
  changed_.notify_all();
}

void RankPool::barrier(std::chrono::seconds limit) {
  std::unique_lock lock(mutex_);
  auto const passed = barriers_;
  if (++waiting_ == size()) {
    waiting_ = 0;
    ++barriers_;
    changed_.notify_all();
    return;
  }
  bool const ended = changed_.wait_for(lock, limit, [&] { return barriers_ != passed || failure_ != nullptr; });
  if (barriers_ != passed) return;
  if (ended) throw Error(ErrorCode::aborted, "another rank of this process has failed");
  throw Error(ErrorCode::timeout, fmt::format("waited {} s for the other ranks of this process: {} of {} have arrived",
                                              limit.count(), waiting_, size()));
}

}  // namespace mscclpp::bench
