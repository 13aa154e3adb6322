// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/driver.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <thread>

#include "sim/machine/machine.hpp"

namespace mscclpp::sim {

void Driver::post(Stream& stream, Work work) {
  auto const held = lock();
  inbox_.emplace_back(&stream, std::move(work));
  mail_.store(true, std::memory_order_release);
  startHelper();
  changed_.notify_all();
}

void Driver::drainInbox() {
  std::vector<std::pair<Stream*, Work>> arrived;
  {
    auto const held = lock();
    arrived.swap(inbox_);
    mail_.store(false, std::memory_order_release);
  }
  for (auto& [stream, work] : arrived) {
    stream->push(std::move(work));
    stream->advance();
  }
}

bool Driver::driveBatch(Lock& lock) {
  constexpr int slices = 4096;
  auto& scheduler = machine_.scheduler();
  driving_ = true;
  lock.unlock();
  auto const completions = completions_;
  scheduler.noteProgress();  // other processes and host threads may have written
  auto const before = scheduler.progress();
  std::exception_ptr failure;
  try {
    for (int i = 0; i < slices && completions_ == completions; ++i) {
      if (mail_.load(std::memory_order_acquire)) drainInbox();
      if (!scheduler.step()) break;
    }
  } catch (...) {
    failure = std::current_exception();
  }
  bool const progressed = scheduler.progress() != before || completions_ != completions;
  lock.lock();
  driving_ = false;
  if (completions_ != completions || quietRequests_ > 0) changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
  return progressed;
}

bool Driver::driveUntil(Lock& lock, std::function<bool()> const& done, std::chrono::steady_clock::time_point deadline) {
  using namespace std::chrono_literals;
  constexpr int yields = 16;
  constexpr std::chrono::nanoseconds longestNap = 500us;
  int idleRounds = 0;
  std::chrono::nanoseconds nap = 20us;
  ++waiters_;
  for (;;) {
    bool const isDone = done();
    auto const now = std::chrono::steady_clock::now();
    if (isDone || now >= deadline) {
      --waiters_;
      changed_.notify_all();  // somebody else has to drive now
      return isDone;
    }
    if (driving_ || quietRequests_ > 0) {
      changed_.wait_until(lock, std::min(deadline, now + 100ms));
    } else if (driveBatch(lock)) {
      idleRounds = 0;
      nap = 20us;
    } else if (++idleRounds < yields) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else {
      changed_.wait_until(lock, std::min(deadline, now + nap));
      nap = std::min(nap * 2, longestNap);
    }
  }
}

void Driver::driveIfNobodyDoes(Lock& lock) {
  if (!driving_ && quietRequests_ == 0) driveBatch(lock);
}

void Driver::awaitQuiet(Lock& lock) {
  ++quietRequests_;
  while (driving_) changed_.wait_for(lock, std::chrono::milliseconds(1));
  --quietRequests_;
}

void Driver::whileQuiet(Lock& lock, std::function<void()> const& act) {
  awaitQuiet(lock);
  driving_ = true;
  lock.unlock();
  act();
  lock.lock();
  driving_ = false;
  changed_.notify_all();
}

// ---- the machine's own thread
// ----------------------------------------------------------------------------------------

// A GPU works while its host does something else, such as waiting for another process. This thread drives while there
// is work and nobody waits for it, and ends after a second without any.
void Driver::startHelper() {
  if (helperRuns_ || helperStops_) return;
  static Driver* const self = [this] {  // of the one machine, which is never destroyed
    std::atexit([] { self->stopHelper(); });
    ::pthread_atfork([] { self->beforeFork(); }, [] { self->afterFork(false); }, [] { self->afterFork(true); });
    return this;
  }();
  std::thread([this] { helperMain(); }).detach();
  helperRuns_ = true;
}

void Driver::helperMain() {
  using namespace std::chrono_literals;
  constexpr std::chrono::nanoseconds longestNap = 500us;
  constexpr std::chrono::nanoseconds grace = 300us;  // most host code waits right after it has launched
  std::unique_lock lock(mutex_);
  auto lastWork = std::chrono::steady_clock::now();
  auto unattendedSince = lastWork;
  std::chrono::nanoseconds nap = 20us;
  while (!helperStops_) {
    auto const now = std::chrono::steady_clock::now();
    bool const work = working() && !machine_.deterministic();
    if (work) lastWork = now;
    if (!work && now - lastWork > 1s) break;
    bool const unattended = work && waiters_ == 0 && quietRequests_ == 0 && !driving_;
    if (!unattended) unattendedSince = now;
    if (unattended && now - unattendedSince >= grace) {
      bool progressed = false;
      try {
        progressed = driveBatch(lock);
      } catch (std::exception const&) {  // thrown again to the next thread that waits and so drives
        changed_.wait_for(lock, 10ms);
      }
      if (waiters_ > 0) changed_.notify_all();
      nap = progressed ? std::chrono::nanoseconds(20us) : std::min(nap * 2, longestNap);
      if (!progressed) changed_.wait_for(lock, nap);
    } else {
      changed_.wait_for(lock, unattended ? grace : std::chrono::nanoseconds(100ms));
    }
  }
  helperRuns_ = false;
  changed_.notify_all();
}

void Driver::stopHelper() {
  std::unique_lock lock(mutex_);
  helperStops_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, std::chrono::seconds(2), [this] { return !helperRuns_; });
}

// A child gets a machine that stands still between two steps, and no helper until it submits work itself.
void Driver::beforeFork() {
  if (machine_.deterministic()) return;
  std::unique_lock lock(mutex_);
  ++quietRequests_;
  while (driving_) changed_.wait_for(lock, std::chrono::milliseconds(1));
  lock.release();
}

void Driver::afterFork(bool inChild) {
  if (machine_.deterministic()) return;
  std::unique_lock lock(mutex_, std::adopt_lock);
  --quietRequests_;
  if (inChild) {
    new (&changed_) std::condition_variable;  // the parent's waiters are not here
    helperRuns_ = false;
    waiters_ = 0;
    quietRequests_ = 0;
  }
  changed_.notify_all();
}

}  // namespace mscclpp::sim
