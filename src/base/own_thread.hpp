// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Threads of the library's own. They take no signals: the program's handlers are for the program's own threads.
#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX, not C
#include <unistd.h>

#include <thread>
#include <utility>

namespace mscclpp {

// A new thread begins with the signal mask of the thread that starts it. Throws std::system_error where there can be
// no more threads.
template <class Main>
std::thread startOwnThread(Main&& main) {
  struct AllBlocked {
    AllBlocked() {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~AllBlocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  } const blocked;
  return std::thread(std::forward<Main>(main));
}

// Whether this is the process that made the object. In a child that fork() made there are no threads of the parent, and
// what they had locked stays locked, so objects of the parent that have threads are only left lying there.
class OwnProcess {
 public:
  explicit operator bool() const noexcept { return owner_ == ::getpid(); }

 private:
  ::pid_t owner_ = ::getpid();
};

}  // namespace mscclpp
