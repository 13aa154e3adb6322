// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/wait.hpp"

#include <algorithm>
#include <thread>

#include "deadline.hpp"

namespace mscclpp {
namespace {

thread_local HostWait installed = nullptr;
thread_local HostOrder const* installedOrder = nullptr;

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

}  // namespace mscclpp
