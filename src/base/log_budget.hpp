// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Log lines of one kind that somebody outside could cause without limit: at most 20 at once, and one a second later on.
// The next line tells how many were left out.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/format.hpp"

namespace mscclpp {

class LogBudget {
 public:
  template <class... Args>
  void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
    if (!logEnabled(level)) return;
    std::uint64_t omitted = 0;
    if (!take(omitted)) return;
    auto line = fmt::format(text, std::forward<Args>(args)...);
    if (omitted != 0) line += fmt::format(" ({} such lines before this one were left out)", omitted);
    writeLog(level, line);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t burst = 20;

  bool take(std::uint64_t& omitted) {
    std::lock_guard const lock(mutex_);
    auto const seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - since_);
    since_ += seconds;
    left_ = std::min(burst, left_ + seconds.count());
    if (left_ == 0) {
      ++omitted_;
      return false;
    }
    --left_;
    omitted = std::exchange(omitted_, 0);
    return true;
  }

  std::mutex mutex_;
  Clock::time_point since_ = Clock::now();
  std::int64_t left_ = burst;
  std::uint64_t omitted_ = 0;
};

}  // namespace mscclpp
