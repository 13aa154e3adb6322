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

namespace mscclpp {

// Returns true once `ready` does, false when the limit has passed first. A limit of zero looks once.
using HostWait = bool (*)(std::function<bool()> const& ready, std::chrono::nanoseconds limit);

// For the calling thread; null: the ordinary way again.
void setThreadHostWait(HostWait wait) noexcept;
HostWait threadHostWait() noexcept;

bool hostWait(std::function<bool()> const& ready, std::chrono::nanoseconds limit);

}  // namespace mscclpp
