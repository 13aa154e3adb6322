// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The end of a process, for tests of what the others find.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace mscclpp::test {

using Clock = std::chrono::steady_clock;

// How soon every wait of every other rank ends.
inline constexpr std::chrono::milliseconds noticed{1000};

// When the victim ended, and how many have learned of it, as all processes see it.
class Ending {
 public:
  Ending()
      : words_(static_cast<std::int64_t*>(
            ::mmap(nullptr, 2 * sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Ending() { ::munmap(words_, 2 * sizeof *words_); }
  // Now, and this process goes on.
  void mark() const { std::atomic_ref(words_[0]).store(Clock::now().time_since_epoch().count()); }
  [[noreturn]] void kill() const {
    mark();
    ::raise(SIGKILL);
    std::abort();
  }
  Clock::time_point time() const { return Clock::time_point(Clock::duration(std::atomic_ref(words_[0]).load())); }
  // How long ago that was, or `start` where this is later.
  Clock::duration since(Clock::time_point start) const { return Clock::now() - std::max(start, time()); }
  // Nobody may learn of the end only because others leave: each stays until so many have learned of it.
  void stay(int learned) const {
    ++std::atomic_ref(words_[1]);
    auto const start = Clock::now();
    while (std::atomic_ref(words_[1]).load() < learned && Clock::now() - start < std::chrono::seconds(3))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::int64_t* words_;
};

}  // namespace mscclpp::test
