// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Formatted errors and log lines for the library's own sources. Kept out of the public headers so that users need no
// fmt to compile.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/log.hpp"

namespace mscclpp {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (logEnabled(level)) writeLog(level, fmt::format(text, std::forward<Args>(args)...));
}

// "10.0 s", "250 ms"
inline std::string describe(std::chrono::nanoseconds time) {
  double const seconds = std::chrono::duration<double>(time).count();
  if (seconds >= 1) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.0f} ms", seconds * 1e3);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

}  // namespace mscclpp
