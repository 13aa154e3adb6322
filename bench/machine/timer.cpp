// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "machine/timer.hpp"

#include <algorithm>
#include <chrono>

namespace mscclpp::bench {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class LoopTimer final : public Timer {
 public:
  explicit LoopTimer(int warmUps) : warmUps_(warmUps) {}

  std::vector<double> measure(Repetition const& repetition, int replays) override {
    std::vector<double> seconds;
    for (int replay = -warmUps_; replay < replays; ++replay) {
      repetition.restore();
      repetition.synchronize();
      repetition.together();
      auto const begin = Clock::now();
      for (int i = 0; i < repetition.operations; ++i) repetition.operate(i, i > 0);
      repetition.synchronize();
      if (replay >= 0) seconds.push_back(secondsSince(begin) / repetition.operations);
    }
    // What follows may stop the device, which must not happen to a rank that others still wait for.
    repetition.together();
    return seconds;
  }

 private:
  int warmUps_;
};

class CallTimer final : public Timer {
 public:
  explicit CallTimer(int warmUps) : warmUps_(warmUps) {}

  std::vector<double> measure(Repetition const& repetition, int replays) override {
    std::vector<double> seconds;
    seconds.reserve(static_cast<std::size_t>(replays * repetition.operations));
    for (int replay = -warmUps_; replay < replays; ++replay) {
      repetition.restore();
      repetition.synchronize();
      repetition.together();
      for (int i = 0; i < repetition.operations; ++i) {
        auto const begin = Clock::now();
        repetition.operate(i, i > 0);
        if (replay >= 0) seconds.push_back(secondsSince(begin));
      }
      repetition.synchronize();
    }
    repetition.together();
    std::sort(seconds.begin(), seconds.end());
    return seconds;
  }

 private:
  int warmUps_;
};

}  // namespace

std::unique_ptr<Timer> makeLoopTimer(int warmUps) { return std::make_unique<LoopTimer>(warmUps); }
std::unique_ptr<Timer> makeCallTimer(int warmUps) { return std::make_unique<CallTimer>(warmUps); }

}  // namespace mscclpp::bench
