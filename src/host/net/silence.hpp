// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long a peer has given no sign of life, for something that is stepped in a loop. The clock is looked at only every
// so many steps: reading it may cost more than the step.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/deadline.hpp"

namespace mscclpp {

class Silence {
 public:
  explicit Silence(std::chrono::nanoseconds limit) : since_(limit) {}

  std::chrono::nanoseconds limit() const { return since_.limit(); }
  void restart() {
    since_ = Deadline(since_.limit());
    lasted_ = {};
    moved_ = false;
  }
  // One more step, in which there was a sign of life or not. Returns how long there was none, as of the last look.
  std::chrono::nanoseconds step(bool moved) {
    moved_ = moved_ || moved;
    if (++steps_ % interval != 0) return lasted_;
    if (moved_) {
      restart();
    } else {
      lasted_ = since_.passed();
    }
    return lasted_;
  }

 private:
  static constexpr std::uint64_t interval = 64;

  Deadline since_;
  std::chrono::nanoseconds lasted_{};
  std::uint64_t steps_ = 0;
  bool moved_ = false;
};

}  // namespace mscclpp
