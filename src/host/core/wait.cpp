// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/wait.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/deadline.hpp"

namespace mscclpp {
namespace {

thread_local HostWait installed = nullptr;
thread_local HostOrder const* installedOrder = nullptr;
thread_local HostWords const* installedWords = nullptr;

void spinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace

void setThreadHostWait(HostWait wait) noexcept { installed = wait; }
HostWait threadHostWait() noexcept { return installed; }

void setThreadHostOrder(HostOrder const* order) noexcept { installedOrder = order; }

std::shared_ptr<void const> hostRelease() { return installedOrder == nullptr ? nullptr : installedOrder->release(); }

void hostAcquire(std::shared_ptr<void const> const& released) {
  if (installedOrder != nullptr && released != nullptr) installedOrder->acquire(released.get());
}

bool hostWait(std::function<bool()> const& ready, std::chrono::nanoseconds limit) {
  if (installed != nullptr) return installed(ready, limit);
  Deadline const deadline(limit);
  constexpr int yields = 64;
  constexpr std::chrono::nanoseconds longestPause = std::chrono::microseconds(500);
  std::chrono::nanoseconds pause = std::chrono::microseconds(10);
  for (int round = 0;; ++round) {
    if (ready()) return true;
    auto const left = deadline.left();
    if (left <= std::chrono::nanoseconds::zero()) return false;
    if (round < yields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min(pause, left));
      pause = std::min(pause * 2, longestPause);
    }
  }
}

void setThreadHostWords(HostWords const* words) noexcept { installedWords = words; }

std::uint64_t loadShared(std::uint64_t const* word) {
  if (installedWords != nullptr) return installedWords->load(word);
  return std::atomic_ref(const_cast<std::uint64_t&>(*word)).load(std::memory_order_acquire);
}

void storeShared(std::uint64_t* word, std::uint64_t value) {
  if (installedWords != nullptr) return installedWords->store(word, sizeof *word, value);
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

void storeShared(std::uint32_t* word, std::uint32_t value) {
  if (installedWords != nullptr) return installedWords->store(word, sizeof *word, value);
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

void hostIdle(std::function<bool()> const& ready, bool busy, std::uint32_t who, std::uint64_t waitsFor,
              unsigned rounds) {
  if (installedWords != nullptr) return installedWords->idle(ready, busy, who, waitsFor, rounds);
  constexpr unsigned eager = 1u << 8;        // what comes soon is noticed without the pause, which takes 50 ns
  constexpr unsigned spins = 1u << 14;       // some 100 us
  constexpr unsigned yields = spins * 1024;  // tenths of a second; then whoever asks next waits some 50 us longer
  if (rounds < eager) return;
  if (rounds < spins) return spinPause();
  if (rounds < yields || busy) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

unsigned hostMostRounds() { return installedWords == nullptr ? 0 : installedWords->mostRounds; }

}  // namespace mscclpp
