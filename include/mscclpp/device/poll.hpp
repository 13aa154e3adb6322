// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The spin loop. Every wait of the library is a call of `poll`, so every wait has a time limit, hears an abort, and
// says what it waited for; JoinedRound, whose threads cannot leave their kernel, has a loop of its own that does the
// same.
//
// A wait that gives up writes a WaitReport into the watch, marks the counters of rounds of all ranks, so that no later
// kernel goes on with what may differ between them now, raises the abort flag so that the other waiters of the rank
// leave too, and leaves the kernel: barriers stop counting the thread, the device context stays usable, and
// the host's Communicator::checkReports() turns the reports into an error. Cost while waiting: the condition itself;
// the watch is looked at about once in a thousand spins.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/layout/watch.hpp"

#if defined(__CUDACC__)
#include "mscclpp/device/arch/cuda/spin.hpp"
#else
#include "mscclpp/device/arch/sim/spin.hpp"
#endif

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

using layout::WaitFor;

// Later kernels of all ranks refuse, see layout/round_counter.hpp.
MSCCLPP_DEVICE void markAstray(layout::Watch* watch) {
  auto const used = load<Order::relaxed, Scope::system>(&watch->countersUsed);
  for (std::uint32_t i = 0; i < used; ++i) {
    auto const& counters = watch->counters[i];
    auto* const first = load<Order::acquire, Scope::system>(&counters.first);
    if (first == nullptr) continue;
    auto const stray = layout::strayRounds(counters.place);
    for (std::uint32_t c = 0; c < counters.count; ++c) {
      store<Order::relaxed, Scope::system>(&first[c].astray, stray);
    }
  }
}
MSCCLPP_COLD_DEVICE void leadAstray(layout::Watch* watch) { markAstray(watch); }

// Of giveUp(), for what cannot leave its kernel. True where the report is kept: whoever wrote it marks all astray.
MSCCLPP_DEVICE bool writeReport(layout::Watch* watch, WaitFor const& what, std::uint64_t seen, std::uint64_t waitedNs) {
  if (watch == nullptr) arch::trap("a kernel refused its launch and has no watch to say why");
  // Only this device counts here, and many hosts have no atomics with devices.
  auto const index = fetchAdd<Order::relaxed, Scope::device>(&watch->reportCount, 1u);
  if (index >= layout::maxWaitReports) return false;
  auto& report = watch->reports[index];
  report.kind = what.kind;
  report.rank = watch->rank;
  report.peer = what.peer;
  report.block = arch::blockIndex();
  report.thread = arch::threadIndex();
  report.channel = what.channel;
  report.expected = what.expected;
  report.seen = seen;
  report.waitedNs = waitedNs;
  store<Order::release, Scope::system>(&report.complete, 1u);
  return true;
}

// Writes the report and leaves the kernel, though the compiler must not know that it does (base/config.hpp): the
// thread's neighbours go on, maybe in the very loop that it gave up in.
MSCCLPP_COLD_DEVICE void giveUp(layout::Watch* watch, WaitFor what, std::uint64_t seen, std::uint64_t waitedNs) {
  if (writeReport(watch, what, seen, waitedNs)) leadAstray(watch);
  store<Order::relaxed, Scope::system>(&watch->abort, 1u);
  arch::exitKernel();
}

// Returns once `ready()` is true, which looks once and must not wait itself. `missing(seen)` tells what is still
// awaited and which value was found in its place; it is asked for a report only, so that the loop stays short.
template <class Ready, class Missing>
MSCCLPP_DEVICE void pollUntil(layout::Watch* watch, Ready&& ready, Missing&& missing) {
  arch::Spin spin(watch);
  while (!ready()) {
    if (!spin.again(missing)) [[unlikely]] {
      std::uint64_t seen = 0;
      auto const what = missing(seen);
      giveUp(watch, what, seen, spin.waitedNs());
    }
  }
  spin.end(missing);
}

// Returns once `ready(seen)` is true. `ready` looks once, stores in `seen` the value it found, and must not wait
// itself.
template <class Ready>
MSCCLPP_DEVICE void poll(layout::Watch* watch, WaitFor const& what, Ready&& ready) {
  std::uint64_t last = 0;
  pollUntil(
      watch, [&] { return ready(last); },
      [&](std::uint64_t& seen) {
        seen = last;
        return what;
      });
}

// The same for a word in host memory that the host writes in answer to what this thread has just stored there. A look
// takes a whole round trip over PCIe and sees what the word was half way, so the first one is held back until the host
// can have answered (H200: 2.5 in place of 3.5 us for a trigger and its answer).
template <class Ready>
MSCCLPP_DEVICE void pollAnswer(layout::Watch* watch, WaitFor const& what, Ready&& ready) {
  constexpr unsigned answerClocks = 500;
  arch::letPass(answerClocks);
  poll(watch, what, static_cast<Ready&&>(ready));
}

// Refuses to go on when a launch cannot work: reports `seen` against `limit` as misuse and leaves the kernel. By a
// thread whose neighbours may go on.
MSCCLPP_DEVICE void requireAlone(bool condition, layout::Watch* watch, std::int32_t peer, std::uint64_t what,
                                 std::uint64_t limit, std::uint64_t seen) {
  if (!condition) [[unlikely]]
    giveUp(watch, {layout::WaitKind::misuse, peer, what, limit}, seen, 0);
}

// The same by threads that all find the same, so that none goes on: they need not keep anything for it.
MSCCLPP_DEVICE void require(bool condition, layout::Watch* watch, std::int32_t peer, std::uint64_t what,
                            std::uint64_t limit, std::uint64_t seen) {
  if (condition) [[likely]]
    return;
  requireAlone(false, watch, peer, what, limit, seen);
  __builtin_unreachable();
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
