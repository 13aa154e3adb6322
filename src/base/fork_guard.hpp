// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Descriptors that belong to this process alone. A child that fork() makes, such as a data loader, would hold a copy of
// each, and keep connections of a dead parent open. In the child each is replaced by /dev/null at once: the number
// stays taken, so whatever object of the parent still has it may close it, and nothing of the parent is reached through
// it. Children of vfork() and posix_spawn() start another program, which closes them (O_CLOEXEC).
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

namespace mscclpp {

class ForkGuard {
 public:
  // What `open` returns, if it is a descriptor: no fork() comes between. `open` must not wait.
  template <class Open>
  static int keep(Open&& open) {
    State& all = state();
    std::lock_guard const lock(all.mutex);
    int const descriptor = open();
    int const error = errno;
    if (descriptor >= 0) all.descriptors.insert(descriptor);
    errno = error;
    return descriptor;
  }
  static void close(int descriptor) noexcept {
    State& all = state();
    std::lock_guard const lock(all.mutex);
    all.descriptors.erase(descriptor);
    ::close(descriptor);
  }
  // From now on children get a copy of it.
  static void release(int descriptor) noexcept {
    State& all = state();
    std::lock_guard const lock(all.mutex);
    all.descriptors.erase(descriptor);
  }

 private:
  struct State {
    std::mutex mutex;
    std::set<int> descriptors;
    int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  };

  // Never destroyed: objects that end with the program close their descriptors through it.
  static State& state() {
    static State& all = *[] {
      auto* const made = new State;
      ::pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); }, &inChild);
      return made;
    }();
    return all;
  }
  static void inChild() {
    State& all = state();
    for (int const descriptor : all.descriptors) {
      if (all.nothing < 0 || ::dup3(all.nothing, descriptor, O_CLOEXEC) < 0) ::close(descriptor);
    }
    all.descriptors.clear();
    all.mutex.unlock();
  }
};

}  // namespace mscclpp
