// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ends the program when something that has no time limit of its own does not end: setting up and closing down other
// libraries, and the driver.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace mscclpp::bench {

class Watchdog {
 public:
  // While it lives, `what` may take this long.
  Watchdog(std::chrono::seconds limit, std::string what)
      : thread_([this, limit, what = std::move(what)](std::stop_token const& stop) {
          std::unique_lock lock(mutex_);
          changed_.wait_for(lock, stop, limit, [] { return false; });
          if (stop.stop_requested()) return;
          fmt::print(stderr, "mscclpp-bench: {} did not end within {} s\n", what, limit.count());
          std::fflush(nullptr);
          std::_Exit(1);
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

}  // namespace mscclpp::bench
