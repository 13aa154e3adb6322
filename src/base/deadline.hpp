// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A point in time that several steps share as their limit.
#pragma once

#include <algorithm>
#include <chrono>

namespace mscclpp {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(std::chrono::nanoseconds limit) : start_(Clock::now()), limit_(limit) {}

  std::chrono::nanoseconds limit() const { return limit_; }
  std::chrono::nanoseconds passed() const { return Clock::now() - start_; }
  // Compared as durations, so that a huge limit does not overflow the clock.
  std::chrono::nanoseconds left() const { return limit_ - passed(); }
  bool expired() const { return left() <= std::chrono::nanoseconds::zero(); }

  // For poll(): rounded up so that a positive rest never becomes a busy loop; at most `most`.
  int pollMilliseconds(int most = 1000) const {
    auto const rest = std::chrono::duration_cast<std::chrono::milliseconds>(left() + std::chrono::microseconds(999));
    return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(rest.count(), 0, most));
  }

 private:
  Clock::time_point start_;
  std::chrono::nanoseconds limit_;
};

}  // namespace mscclpp
