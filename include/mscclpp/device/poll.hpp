// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The only spin loop. Every wait of the library is a call of `poll`, so every wait has a time limit, hears an abort,
// and says what it waited for.
//
// A wait that gives up writes a WaitReport into the watch, marks what works in rounds on all ranks (Watch::marks), so
// that no later kernel goes on with what may differ between them now, raises the abort flag so that the other waiters
// of the rank leave too, and leaves the kernel: barriers stop counting the thread, the device context stays usable, and
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

// Later kernels of all ranks refuse what is marked, see device/epoch.hpp.
MSCCLPP_DEVICE void markBroken(layout::Watch* watch) {
  auto const used = load<Order::relaxed, Scope::system>(&watch->marksUsed);
  for (std::uint32_t i = 0; i < used; ++i) {
    auto* const mark = load<Order::relaxed, Scope::system>(&watch->marks[i]);
    if (mark != nullptr) store<Order::relaxed, Scope::system>(mark, std::uint64_t{1});
  }
}

// Writes the report and leaves the kernel, though the compiler must not know that it does (base/config.hpp): the
// thread's neighbours go on, maybe in the very loop that it gave up in.
MSCCLPP_COLD_DEVICE void giveUp(layout::Watch* watch, WaitFor what, std::uint64_t seen, std::uint64_t waitedNs) {
  if (watch == nullptr) arch::trap("a kernel refused its launch and has no watch to say why");
  // Only this device counts here, and many hosts have no atomics with devices.
  auto const index = fetchAdd<Order::relaxed, Scope::device>(&watch->reportCount, 1u);
  if (index < layout::maxWaitReports) {
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
    markBroken(watch);
  }
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

// What the mark of a team, program or ring says; the load is only begun here.
MSCCLPP_DEVICE std::uint64_t loadBroken(std::uint64_t const* mark) { return load<Order::relaxed, Scope::system>(mark); }
// What packets' flags are off by where it is set, for a rank of a team: even, and so far that no flag of this rank is
// one that any other sends or waits for. Nothing waits for that: a branch between a packet's data and its store would
// keep the compiler from loading the data early (H200: 0.25 of 1.57 us for an all-reduce of 1 KiB).
MSCCLPP_DEVICE std::uint32_t strayRounds(std::uint64_t broken, int rank) {
  constexpr std::uint32_t far = std::uint32_t{1} << 29;
  constexpr std::uint32_t apart = far / (2 * maxTeamSize) / 2 * 2;
  return broken != 0 ? far + static_cast<std::uint32_t>(rank) * apart : 0;
}
// Refuses to go on where it is set. Called before anything is sent to a peer, but for stray packets.
MSCCLPP_DEVICE void requireUnbroken(layout::Watch* watch, std::uint64_t broken) {
  require(broken == 0, watch, -1, std::uint64_t(layout::Misuse::broken), 0, 0);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
