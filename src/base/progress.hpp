// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One line on a terminal that says how far something long has come and how long it may still take; it is written over,
// and taken away before anything else is printed. Where standard error is no terminal, nothing.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/format.hpp"

namespace mscclpp {

// "3 min", of seconds.
inline std::string roughly(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 90 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

class Progress {
 public:
  explicit Progress(bool wanted = true) : shown_(wanted && ::isatty(STDERR_FILENO) == 1) {}
  ~Progress() { clear(); }
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;

  // `done` of `total`, 0 where nobody knows, and what comes now. No more often than ten times a second.
  void show(std::size_t done, std::size_t total, std::string_view what) {
    if (!shown_) return;
    auto const now = Clock::now();
    if (now - written_ < std::chrono::milliseconds(100)) return;
    written_ = now;
    std::string text;
    if (total != 0) {
      text = fmt::format("[{}/{}] ", std::min(done, total), total);
    } else if (done != 0) {
      text = fmt::format("[{}] ", done);
    }
    text += what;
    double const gone = std::chrono::duration<double>(now - begun_).count();
    if (done > 0 && done < total && gone > 5) {
      text +=
          fmt::format(", about {} left", roughly(gone / static_cast<double>(done) * static_cast<double>(total - done)));
    }
    write(text);
  }
  void clear() {
    if (written_ != Clock::time_point{}) write({});
    written_ = {};
  }

 private:
  using Clock = std::chrono::steady_clock;

  static void write(std::string_view text) { fmt::print(stderr, "\r\033[K{}", text); }

  bool shown_;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point written_{};
};

}  // namespace mscclpp
