// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How host code waits for something that other threads do, always with a limit.
//
// On an ordinary thread the condition is looked at again and again with growing pauses (0.5 ms at most). A machine
// whose ranks are not threads, such as the simulator's fibers, installs its own function for the threads that it runs
// them on. The condition is evaluated with no lock held by the waiter and may itself take locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace mscclpp {

// Returns true once `ready` does, false when the limit has passed first. A limit of zero looks once.
using HostWait = bool (*)(std::function<bool()> const& ready, std::chrono::nanoseconds limit);

// What host code hands on with a message and learns from one, on a machine that checks who is ordered with whom.
struct HostOrder {
  // Notes what the calling thread has done so far.
  std::shared_ptr<void const> (*release)();
  // Orders what the calling thread does from now on behind what `released` notes.
  void (*acquire)(void const* released);
};

// For the calling thread; null: nothing is recorded.
void setThreadHostOrder(HostOrder const* order) noexcept;
std::shared_ptr<void const> hostRelease();
void hostAcquire(std::shared_ptr<void const> const& released);

// For the calling thread; null: the ordinary way again.
void setThreadHostWait(HostWait wait) noexcept;
HostWait threadHostWait() noexcept;

// As HostWait: by the function of the calling thread, or the ordinary way.
bool hostWait(std::function<bool()> const& ready, std::chrono::nanoseconds limit);

// How host code shares words with kernels: loads acquire, stores release, both with every thread of every device. A
// machine whose proxies are not threads installs its own way for the threads that it runs them on.
struct HostWords {
  // What loadShared() does.
  std::uint64_t (*load)(std::uint64_t const* word);
  // What storeShared() does; `bytes` is 4 or 8.
  void (*store)(void* word, unsigned bytes, std::uint64_t value);
  // Nothing to do until `ready`, which only loads words, or for a moment. `busy`: something else is under way, so only
  // for a moment. `who` is for reports, `waitsFor` a position, `rounds` how often in a row there was nothing to do.
  void (*idle)(std::function<bool()> const& ready, bool busy, std::uint32_t who, std::uint64_t waitsFor,
               unsigned rounds);
  // After so many rounds what is under way cannot end any more; 0: time decides.
  unsigned mostRounds;
};

// For the calling thread; null: plain memory, and a wait that spins at first and rests later.
void setThreadHostWords(HostWords const* words) noexcept;
std::uint64_t loadShared(std::uint64_t const* word);
void storeShared(std::uint64_t* word, std::uint64_t value);
void storeShared(std::uint32_t* word, std::uint32_t value);
void hostIdle(std::function<bool()> const& ready, bool busy, std::uint32_t who, std::uint64_t waitsFor,
              unsigned rounds);
unsigned hostMostRounds();

}  // namespace mscclpp
