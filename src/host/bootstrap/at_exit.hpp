// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is done where the program calls exit(), main's return included, while the object of this lives. Not in a child
// of fork(), for objects of its parent.
#pragma once

#include <pthread.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

namespace mscclpp {

class AtExit {
 public:
  explicit AtExit(std::function<void()> act) : act_(std::move(act)) {
    State& all = state();
    std::lock_guard const lock(all.mutex);
    all.living.insert(this);
  }
  // Waits for an `act` that runs.
  ~AtExit() {
    State& all = state();
    std::lock_guard const lock(all.mutex);
    all.living.erase(this);
  }
  AtExit(AtExit const&) = delete;
  AtExit& operator=(AtExit const&) = delete;

 private:
  struct State {
    std::mutex mutex;
    std::set<AtExit*> living;
  };

  // Never destroyed: objects may end after it.
  static State& state() {
    static State& all = *[] {
      auto* const made = new State;
      ::pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); }, &inChild);
      std::atexit(&run);
      return made;
    }();
    return all;
  }
  static void inChild() {
    state().living.clear();
    state().mutex.unlock();
  }
  static void run() {
    State& all = state();
    std::lock_guard const lock(all.mutex);
    for (auto const* const one : all.living) one->act_();
  }

  std::function<void()> const act_;
};

}  // namespace mscclpp
