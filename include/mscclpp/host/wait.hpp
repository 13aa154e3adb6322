// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How host code waits for something that other threads do, always with a limit.
//
// On an ordinary thread the condition is looked at again and again with growing pauses (0.5 ms at most). A machine
// whose ranks are not threads, such as the simulator's fibers, installs its own function for the threads that it runs
// them on. The condition is evaluated with no lock held by the waiter and may itself take locks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace mscclpp {

// Returns true once `ready` does, false when the limit has passed first. A limit of zero looks once.
using HostWait = bool (*)(std::function<bool()> const& ready, std::chrono::nanoseconds limit);

// What host code hands on with a message and learns from one, on a machine that checks who is ordered with whom.
struct HostOrder {
  std::shared_ptr<void const> (*release)();
  void (*acquire)(void const* released);
};

// For the calling thread; null: nothing is recorded.
void setThreadHostOrder(HostOrder const* order) noexcept;
std::shared_ptr<void const> hostRelease();
void hostAcquire(std::shared_ptr<void const> const& released);

// For the calling thread; null: the ordinary way again.
void setThreadHostWait(HostWait wait) noexcept;
HostWait threadHostWait() noexcept;

bool hostWait(std::function<bool()> const& ready, std::chrono::nanoseconds limit);

}  // namespace mscclpp
